// Decisions of the Hopper 8-bit forward: what it says of blocks that no kernel serves.
#include "plan/forward_fp8_sm90.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/quantized.hpp"
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

std::string variant_of(const Problem& problem) {
  Result<Attention> attention = resolve(Pass::forward, problem);
  if (!attention) return attention.status().message;
  const Result<ForwardFp8Plan> plan = plan_forward_fp8_sm90(*attention, h200);
  return plan ? plan->variant->name : plan.status().message;
}

/// e4m3 of head dim 128 with packed values.
Problem packed_values(int64_t keys) {
  Problem problem = eight_bits(128);
  problem.query.size[1] = problem.key.size[1] = keys;
  problem.value = contiguous(Dtype::e4m3, cuda(0), {2, 4, (keys + 15) / 16, 128, 16});
  problem.quantization.value_layout = ValueLayout::packed;
  return problem;
}

/// The kernel for short sequences is smaller and can't promote sums: where sums are to be promoted, and where lengths
/// must not matter, the one for long sequences serves short ones as well.
TEST(ForwardFp8Plan, ShortSequencesThatArePromotedTakeTheLongOnesKernel) {
  EXPECT_EQ(variant_of(packed_values(640)), "forward_e4m3_d128");
  EXPECT_EQ(variant_of(packed_values(1000)), "forward_e4m3_d128_long");
  EXPECT_EQ(variant_of(packed_values(2048)), "forward_e4m3_d128_long");
  Problem problem = packed_values(1000);
  problem.quantization.promote = false;
  EXPECT_EQ(variant_of(problem), "forward_e4m3_d128");
  for (const int64_t keys : {200, 5000}) {
    problem = packed_values(keys);
    problem.options.batch_invariant = true;
    EXPECT_EQ(variant_of(problem), "forward_e4m3_d128_long") << keys;
  }
}

/// Scales that someone else made have a kernel, and not one for another head dim.
TEST(ForwardFp8Plan, ServesBlocksOfUsualSizes) {
  for (const int64_t keys : {200, 1000, 100000}) {
    for (const int rows : {64, 96, 128, 192}) {
      Problem problem = packed_values(keys);
      problem.quantization.key_rows = problem.quantization.value_rows = rows;
      EXPECT_EQ(variant_of(problem).substr(0, 17), "forward_e4m3_d128") << keys << " keys, " << rows << " rows";
    }
  }
}

/// Kernels divide by an inverse; beyond its range is an error, not another scale.
TEST(ForwardFp8Plan, LimitsLengthsToWhatKernelsCanDivide) {
  for (const int32_t divisor : {1, 2, 3, 5, 6, 7, 12, 64, 100, 1023, 4097, 65536}) {
    const float inverse = 1.0f / static_cast<float>(divisor);
    for (int32_t dividend = 0; dividend <= quotient_limit; dividend += dividend < 4096 ? 1 : 37)
      ASSERT_EQ(quotient(dividend, inverse), dividend / divisor) << dividend << " / " << divisor;
    for (int32_t multiple = divisor; multiple <= quotient_limit;
         multiple += std::max(divisor, 1 << 12) / divisor * divisor)
      ASSERT_EQ(quotient(multiple - 1, inverse), multiple / divisor - 1) << multiple - 1 << " / " << divisor;
  }
  Problem problem = eight_bits(128);
  problem.key.size[1] = problem.value.size[1] = (int64_t{1} << 26) + 1;
  const Status status = status_of(problem);
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_STREQ(status.argument, "key");
  problem = eight_bits(128);
  problem.query.size[1] = (int64_t{1} << 26) + 1;
  EXPECT_STREQ(status_of(problem).argument, "query");
  problem = eight_bits(128);
  problem.query.size[2] = (int64_t{1} << 21) + 4;
  EXPECT_STREQ(status_of(problem).argument, "query");
  EXPECT_NE(std::string(status_of(problem).message).find("heads"), std::string::npos) << status_of(problem).message;
}

TEST(ForwardFp8Plan, SaysThatHeadDimsAreMultiplesOf16) {
  const Status status = status_of(eight_bits(72));
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_STREQ(status.argument, "query");
  EXPECT_NE(std::string(status.message).find("head dims"), std::string::npos) << status.message;
}

}  // namespace
}  // namespace tandem::internal
