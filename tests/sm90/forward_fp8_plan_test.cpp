// Decisions of the Hopper 8-bit forward: what it says of blocks that no kernel serves.
#include "plan/forward_fp8_sm90.hpp"

#include <gtest/gtest.h>

#include "sm90/support.hpp"

namespace tandem::internal {
namespace {

Problem eight_bits(int64_t dim) {
  Problem problem = dense(2, 1000, 4, dim);
  problem.query.dtype = problem.key.dtype = problem.value.dtype = Dtype::e4m3;
  problem.out = {};
  problem.quantization.value_layout = ValueLayout::rows;
  return problem;
}

Status status_of(const Problem& problem) {
  Result<Attention> attention = resolve(Pass::forward, problem);
  if (!attention) return attention.status();
  return plan_forward_fp8_sm90(*attention, h200).status();
}

TEST(ForwardFp8Plan, SaysWhichBlocksItServes) {
  Problem problem = eight_bits(128);
  EXPECT_TRUE(status_of(problem).ok()) << status_of(problem).message;
  problem.quantization.key_rows = 100;
  Status status = status_of(problem);
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_STREQ(status.argument, "quantization.key_rows");
  EXPECT_NE(std::string(status.message).find("multiples of the key tile"), std::string::npos) << status.message;
  EXPECT_NE(std::string(status.message).find("128"), std::string::npos) << status.message;
  problem.quantization.key_rows = 0;
  problem.quantization.value_rows = 7;
  status = status_of(problem);
  EXPECT_STREQ(status.argument, "quantization.value_rows");
}

TEST(ForwardFp8Plan, SaysThatHeadDimsAreMultiplesOf16) {
  const Status status = status_of(eight_bits(72));
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_STREQ(status.argument, "query");
  EXPECT_NE(std::string(status.message).find("head dims"), std::string::npos) << status.message;
}

}  // namespace
}  // namespace tandem::internal
