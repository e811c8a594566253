// What plan/backward_sm90.cpp decides: variants, refusals, copies, schedules, workspace.
#include "plan/backward_sm90.hpp"

#include <string>
#include <string_view>

#include "sm90/support.hpp"

namespace tandem::internal {
namespace {

/// A forward problem with what the backward pass needs besides.
Problem with_gradients(Problem problem) {
  problem.out = problem.grad_out = [&] {
    TensorSpec out = problem.query;
    const auto last = static_cast<size_t>(out.rank - 1);
    out.size[last] = problem.value.size[last];
    int64_t stride = 1;
    for (size_t i = last + 1; i-- > 0;) {
      out.stride[i] = stride;
      stride *= out.size[i];
    }
    return out;
  }();
  problem.grad_query = problem.query;
  problem.grad_key = problem.key;
  problem.grad_value = problem.value;
  const auto& size = problem.query.size;
  problem.lse = problem.query.rank == 4 ? contiguous(Dtype::fp32, cuda(0), {size[0], size[2], size[1]})
                                        : contiguous(Dtype::fp32, cuda(0), {size[1], size[0]});
  return problem;
}

Result<BackwardPlan> planned_backward(const Problem& problem) {
  const Result<Attention> attention = resolve(Pass::backward, problem);
  EXPECT_TRUE(attention.ok()) << attention.status().argument << ": " << attention.status().message;
  if (!attention) return attention.status();
  return plan_backward_sm90(*attention, h200);
}

BackwardPlan plan_of(const Problem& problem) {
  const Result<BackwardPlan> plan = planned_backward(with_gradients(problem));
  EXPECT_TRUE(plan.ok()) << plan.status().message;
  return plan.ok() ? *plan : BackwardPlan{};
}

TEST(BackwardVariant, SmallestThatServesBothHeadDims) {
  const auto chosen = [](int64_t dim, int64_t value_dim, Dtype dtype) {
    const auto* variant = plan_of(dense(1, 128, 128, 2, 2, dim, value_dim, dtype)).variant;
    return variant != nullptr ? variant->config : sm90::backward::Config{.head_dim = 0};
  };
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
    for (int64_t dim = 8; dim <= 256; dim += 8) {
      const auto c = chosen(dim, dim, dtype);
      EXPECT_EQ(c.head_dim, dim <= 64 ? 64 : dim <= 128 ? 128 : dim <= 192 ? 192 : 256) << dim;
      EXPECT_EQ(c.dtype, dtype);
    }
  }
  EXPECT_EQ(chosen(192, 128, Dtype::bf16).head_dim, 192);
  EXPECT_EQ(chosen(64, 128, Dtype::bf16).head_dim, 128);
}

TEST(BackwardVariant, DeterministicModeHasItsOwnAtD64) {
  Problem problem = with_gradients(dense(1, 128, 2, 64));
  EXPECT_FALSE(planned_backward(problem)->variant->deterministic);
  problem.options.deterministic = true;
  const auto plan = planned_backward(problem);
  EXPECT_TRUE(plan->variant->deterministic);
  EXPECT_EQ(plan->variant->config.head_dim, 64);
}

TEST(BackwardPlan, DeterministicTilesGoUpwardsUnderACausalMask) {
  Problem problem = with_gradients(dense(1, 512, 2, 128));
  problem.mask.causal = true;
  EXPECT_FALSE(planned_backward(problem)->upwards) << "the longest first";
  problem.options.deterministic = true;
  EXPECT_TRUE(planned_backward(problem)->upwards);
  problem.mask.causal = false;
  EXPECT_FALSE(planned_backward(problem)->upwards);
}

TEST(BackwardVariant, FitsAnSm) {
  for (const auto& variant : sm90::backward_variants) {
    EXPECT_LE(variant.config.shared_bytes(), 232448) << variant.name;
    EXPECT_LE(128 * sm90::backward::Config::registers_producer + 256 * sm90::backward::Config::registers_consumer,
              384 * 168)
        << "what the block has at launch";
  }
  for (const auto& variant : sm90::backward_query_variants) {
    EXPECT_LE(variant.config.shared_bytes(), 232448) << variant.name;
    EXPECT_LE(
        128 * sm90::backward::QueryConfig::registers_producer + 256 * sm90::backward::QueryConfig::registers_consumer,
        384 * 168)
        << "what the block has at launch";
  }
}

TEST(BackwardPlan, RefusesWhatNoKernelServes) {
  Problem problem = with_gradients(dense(1, 128, 2, 64));
  problem.softcap = 15;
  const auto softcap = planned_backward(problem);
  EXPECT_STREQ(softcap.status().argument, "softcap");
  const auto wide = planned_backward(with_gradients(dense(1, 128, 128, 2, 2, 264, 264)));
  EXPECT_STREQ(wide.status().argument, "query");
  const auto odd = planned_backward(with_gradients(dense(1, 128, 128, 2, 2, 64, 60)));
  EXPECT_STREQ(odd.status().argument, "value");
}

TEST(BackwardPlan, WorkspaceIsBounded) {
  Problem problem = with_gradients(dense(4, 4096, 16, 128));
  for (const bool deterministic : {false, true}) {
    problem.options.deterministic = deterministic;
    const auto plan = planned_backward(problem);
    ASSERT_TRUE(plan.ok());
    const size_t rows = size_t{4} * 4096 * 16;
    EXPECT_GE(plan->workspace_bytes, rows * (128 * 4 + 8));
    EXPECT_LE(plan->workspace_bytes, rows * (128 * 4 + 8) + (1 << 20));
  }
}

TEST(BackwardPlan, WorkspaceIsNeverNothing) {
  for (const int64_t dim : {64, 128, 256}) {
    const auto plan = planned_backward(with_gradients(dense(1, 0, 100, 2, 2, dim, dim)));
    ASSERT_TRUE(plan.ok()) << plan.status().message;
    EXPECT_GT(plan->workspace_bytes, 0U) << "tensors without rows are mapped to it";
  }
}

TEST(BackwardPlan, WideHeadsHaveAKernelOfQueriesInsteadOfAnAccumulator) {
  for (const int64_t dim : {136, 192, 200, 256}) {
    const Problem problem = with_gradients(dense(4, 1000, 16, dim));
    const auto plan = planned_backward(problem);
    ASSERT_TRUE(plan.ok());
    ASSERT_NE(plan->query_variant, nullptr);
    EXPECT_EQ(plan->query_variant->config.head_dim, plan->variant->config.head_dim);
    EXPECT_EQ(plan->query_variant->config.dtype, plan->variant->config.dtype);
    EXPECT_EQ(plan->queries.tiles, 4 * 16 * 8) << "of 128 queries";
    EXPECT_LE(plan->workspace_bytes, size_t{4} * 1024 * 16 * 8 + 1024) << "LSE and D alone";
    const auto text = describe(*plan, *resolve(Pass::backward, problem));
    EXPECT_NE(text.find(plan->query_variant->name), std::string::npos) << text;
  }
  EXPECT_EQ(plan_of(dense(1, 128, 2, 128)).query_variant, nullptr);
}

TEST(BackwardPlan, CountersOfBothKernelsLieApart) {
  Problem problem = with_gradients(dense(16, 2048, 16, 256));
  problem.mask.causal = true;
  const auto plan = planned_backward(problem);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->dynamic && plan->queries.dynamic);
  EXPECT_NE(plan->counter_at, plan->queries.counter_at);
  EXPECT_LE(plan->queries.counter_at + 4, plan->workspace_bytes);
}

TEST(BackwardPlan, WideGradientsOfQueriesAreStoredByTma) {
  Problem problem = with_gradients(dense(2, 128, 2, 256));
  problem.grad_query.alignment = 8;
  EXPECT_NE(planned_backward(problem)->grad_query.reason, nullptr);
}

TEST(BackwardPlan, BlocksStayWhereTheDeviceHasRoomForAllTiles) {
  const BackwardPlan few = plan_of(dense(1, 512, 8, 64));
  EXPECT_EQ(few.tiles, 32);
  EXPECT_EQ(few.grid, 32);
  EXPECT_FALSE(few.dynamic);
  const BackwardPlan many = plan_of(dense(32, 512, 32, 64));
  EXPECT_EQ(many.tiles, 4096);
  EXPECT_EQ(many.grid, 132);
  EXPECT_TRUE(many.dynamic);
}

TEST(BackwardPlan, GroupsShareTheTileOfTheirKeyHead) {
  EXPECT_EQ(plan_of(dense(2, 512, 512, 8, 2, 64, 64)).tiles, 2 * 2 * 4);
}

TEST(BackwardPlan, TilesOfSeveralHeadsInTurn) {
  const BackwardPlan plan = plan_of(dense(2, 1024, 4, 64));
  EXPECT_TRUE(plan.order.longest_first);
  EXPECT_EQ(plan.order.section, 8) << "all heads fit in the cache";
  EXPECT_LT(plan_of(dense(2, 16384, 16, 128)).order.section, 32);
}

TEST(BackwardPlan, PackedSequencesHaveBlocksOfTheirOwn) {
  const BackwardPlan plan = plan_of(packed(3, 1000, 900, 2, 64));
  EXPECT_TRUE(plan.scan);
  EXPECT_TRUE(plan.query_side.ragged && plan.key_side.ragged);
  // Sequences of any lengths that add up to the total must fit.
  for (const auto& lengths : {std::array{1000, 0, 0}, std::array{1, 1, 998}, std::array{333, 333, 334}}) {
    int32_t offset = 0, behind = 0;
    for (int32_t b = 0; b < 3; ++b) {
      const int32_t first = plan.blocks.first(b, offset, true), length = lengths[static_cast<size_t>(b)];
      EXPECT_GE(first, behind);
      behind = first + ceil_divide(length, plan.blocks.tile);
      offset += length;
    }
    EXPECT_LE(behind, plan.blocks.per_head);
  }
}

TEST(BackwardPlan, CopiesWhatTmaCannotTake) {
  Problem problem = with_gradients(dense(2, 128, 2, 64));
  problem.grad_out.stride = {0, 0, 0, 1};  // one row for all
  problem.grad_key.alignment = 8;
  const auto plan = planned_backward(problem);
  ASSERT_TRUE(plan.ok()) << plan.status().message;
  EXPECT_NE(plan->grad_out.reason, nullptr);
  EXPECT_NE(plan->grad_key.reason, nullptr);
  EXPECT_EQ(plan->query.reason, nullptr);
  EXPECT_EQ(plan->grad_value.reason, nullptr);
  const auto text = describe(*plan, *resolve(Pass::backward, problem));
  EXPECT_NE(text.find("grad_out: "), std::string::npos) << text;
}

TEST(BackwardPlan, UsedLengthsNeedOnePitch) {
  Problem problem = with_gradients(dense(2, 128, 2, 64));
  problem.lengths.used_query = true;
  EXPECT_EQ(planned_backward(problem)->query_pitch, 128);
  problem.grad_out.stride[0] *= 2;  // sequences further apart
  const auto plan = planned_backward(problem);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->query.reason, nullptr);
  EXPECT_NE(plan->grad_out.reason, nullptr);
  EXPECT_EQ(plan->query_pitch, 128);
}

TEST(BackwardPlan, EmptySides) {
  const BackwardPlan keys = plan_of(dense(2, 0, 128, 2, 2, 64, 64));
  EXPECT_TRUE(keys.no_queries);
  EXPECT_GT(keys.tiles, 0) << "dK and dV are still to be zeroed";
  const BackwardPlan queries = plan_of(dense(2, 128, 0, 2, 2, 64, 64));
  EXPECT_TRUE(queries.no_keys);
  EXPECT_EQ(queries.tiles, 0);
  const BackwardPlan none = plan_of(dense(0, 128, 128, 2, 2, 64, 64));
  EXPECT_EQ(none.workspace_bytes, 0U);
}

}  // namespace
}  // namespace tandem::internal
