// Decisions of the Hopper quantiser: which kernels run, how rows are cut into blocks, what is refused.
#include "plan/quantize_sm90.hpp"

#include <gtest/gtest.h>

#include "sm90/support.hpp"

namespace tandem::internal {
namespace {

Problem quantising(int64_t rows, int64_t heads, int64_t dim) {
  Problem problem = dense(2, rows, heads, dim);
  problem.quantization.query_rows = problem.quantization.key_rows = problem.quantization.value_rows = 128;
  return problem;
}

Result<QuantizePlan> planned_quantising(const Problem& problem) {
  const Result<Attention> attention = resolve(Pass::quantize, problem);
  if (!attention) return attention.status();
  return plan_quantize_sm90(*attention, h200);
}

QuantizePlan plan_of(const Problem& problem) {
  const Result<QuantizePlan> plan = planned_quantising(problem);
  EXPECT_TRUE(plan.ok()) << plan.status().argument << ": " << plan.status().message;
  return plan.ok() ? *plan : QuantizePlan{};
}

TEST(QuantizePlan, ReadsOnceForBlockScales) {
  const QuantizePlan plan = plan_of(quantising(1000, 4, 128));
  EXPECT_EQ(plan.workspace_bytes, 0U);
  for (const QuantizePlan::Operand& o : plan.operands) {
    EXPECT_EQ(o.search.grid, 0);
    EXPECT_EQ(o.columns_search.grid, 0);
    EXPECT_EQ(o.scales_grid, 0);
    EXPECT_EQ(o.quantize.grid, 2 * 8 * 4);
    EXPECT_EQ(o.quantize.threads, 512);
    EXPECT_EQ(o.quantize.parts, 1);
  }
  EXPECT_TRUE(plan.operands[QuantizePlan::value].groups);
}

TEST(QuantizePlan, ReadsTwiceForHeadsAndMeans) {
  Problem problem = quantising(1000, 4, 128);
  problem.quantization.query = problem.quantization.value = Granularity::head;
  problem.quantization.value_mean = true;
  QuantizePlan plan = plan_of(problem);
  EXPECT_GT(plan.operands[QuantizePlan::query].search.grid, 0);
  EXPECT_EQ(plan.operands[QuantizePlan::query].scales_grid, 8);
  // One more read finds the means and, with them, the largest magnitudes.
  EXPECT_GT(plan.operands[QuantizePlan::value].columns_search.grid, 0);
  EXPECT_EQ(plan.operands[QuantizePlan::value].search.grid, 0);
  // The caller's mean alone leaves the search for scales; with the caller's magnitudes too, value is read once.
  problem.quantization.known_mean = true;
  plan = plan_of(problem);
  EXPECT_EQ(plan.operands[QuantizePlan::value].columns_search.grid, 0);
  EXPECT_GT(plan.operands[QuantizePlan::value].search.grid, 0);
  problem.quantization.amax = true;
  plan = plan_of(problem);
  EXPECT_EQ(plan.operands[QuantizePlan::value].search.grid, 0);
  problem.quantization.value = Granularity::block;
  EXPECT_EQ(plan_of(problem).workspace_bytes, 0U);
  problem.quantization.value = Granularity::head;
  problem.quantization.value_mean = problem.quantization.known_mean = false;
  plan = plan_of(problem);
  EXPECT_EQ(plan.operands[QuantizePlan::query].search.grid, 0);
  EXPECT_EQ(plan.operands[QuantizePlan::value].search.grid, 0);
}

TEST(QuantizePlan, SharesHeadsWhereBlocksAreMany) {
  EXPECT_EQ(plan_of(quantising(1000, 4, 128)).operands[0].quantize.heads_at_once, 1);
  const QuantizePlan::Pass many = plan_of(quantising(16384, 16, 128)).operands[0].quantize;
  EXPECT_EQ(many.heads_at_once, 4);
  EXPECT_EQ(many.grid, 2 * 128 * 16 / 4);
}

TEST(QuantizePlan, CutsLargeBlocksIntoParts) {
  Problem problem = quantising(1000, 1, 256);
  problem.quantization.query_rows = 192;
  const QuantizePlan::Pass pass = plan_of(problem).operands[0].quantize;
  EXPECT_EQ(pass.parts, 2);
  EXPECT_EQ(pass.at_once, 96);
  EXPECT_EQ(pass.threads, 768);
}

TEST(QuantizePlan, NamesWhatItRefuses) {
  Result<QuantizePlan> plan = planned_quantising(quantising(100, 2, 100));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code, Code::unsupported);
  EXPECT_STREQ(plan.status().argument, "query");
  Problem problem = quantising(100, 2, 64);
  problem.quantization.value_rows = 72;
  plan = planned_quantising(problem);
  ASSERT_FALSE(plan.ok());
  EXPECT_STREQ(plan.status().argument, "quantization.value_rows");
}

TEST(QuantizePlan, HasFourKernels) { EXPECT_LE(std::size(sm90::quantize::kernels), 4U); }

}  // namespace
}  // namespace tandem::internal
