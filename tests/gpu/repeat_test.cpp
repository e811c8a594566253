// The same bits again: from run to run, and whatever a request's batch mates are.
#include <cstring>

#include "gpu/support.hpp"

namespace tandem::testing {
namespace {

class GpuRepeat : public Gpu {
 protected:
  void expect_repeatable(Job job) {
    auto planned = plan_of(job);
    ASSERT_TRUE(planned.ok()) << planned.status().message;
    tools::Execution execution(job, *planned, *memory_);
    Job first;
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(execution.run().ok());
      execution.fetch(job);
      if (i == 0) first = job;
      ASSERT_TRUE(same(job.out, first.out)) << "run " << i;
      ASSERT_TRUE(same(job.lse, first.lse)) << "run " << i;
    }
  }
};

// A plan's schedule serves any number of runs.
TEST_F(GpuRepeat, E4_TilesHandedOutByACounter) {
  expect_repeatable(
      make_job({.batch = 2, .queries = 1500, .keys = 1500, .query_heads = 16, .key_heads = 4, .mask = causal_mask()}));
}

TEST_F(GpuRepeat, TilesInStridesOfTheGrid) {
  expect_repeatable(make_job({.batch = 4, .queries = 900, .keys = 700, .query_heads = 16, .key_heads = 16}));
}

TEST_F(GpuRepeat, PackedSequences) {
  expect_repeatable(make_job({.query_heads = 8,
                              .key_heads = 2,
                              .head_dim = 64,
                              .mask = causal_mask(),
                              .cu_query = {0, 1000, 1001, 1001, 3000},
                              .cu_key = {0, 1200, 1300, 1700, 4000}}));
}

TEST_F(GpuRepeat, Backward) {
  Job job = make_job({.queries = 500, .keys = 500, .query_heads = 8, .key_heads = 2, .mask = causal_mask()});
  run(job);
  job.pass = Pass::backward;
  job.grad_out = tools::tensor_of(quick_array({1, 500, 8, 128}, Dtype::bf16, 3));
  job.grad_query = tools::poisoned(Dtype::bf16, {1, 500, 8, 128});
  job.grad_key = tools::poisoned(Dtype::bf16, {1, 500, 2, 128});
  job.grad_value = tools::poisoned(Dtype::bf16, {1, 500, 2, 128});
  Options options;
  options.deterministic = true;
  if (const auto planned = plan_of(job, options); !planned.ok()) GTEST_SKIP() << planned.status().message;
  Job first;
  for (int i = 0; i < 20; ++i) {
    run(job, options);
    if (i == 0) first = job;
    ASSERT_TRUE(same(job.grad_query, first.grad_query)) << "run " << i;
    ASSERT_TRUE(same(job.grad_key, first.grad_key)) << "run " << i;
    ASSERT_TRUE(same(job.grad_value, first.grad_value)) << "run " << i;
  }
}

constexpr int64_t mates = 17, place = 5;

/// Copies batch entry 0 of `one` over entry `place` of `many`; both row-major.
void put(const Tensor& one, Tensor& many) {
  const size_t bytes = static_cast<size_t>(one.spec.stride[0]) * tools::size_of(one.spec.dtype);
  std::memcpy(many.bytes.data() + many.first + place * bytes, one.bytes.data() + one.first, bytes);
}

TEST_F(GpuRepeat, K6_AloneAndAmongBatchMates) {
  for (const int64_t dim : {64, 128, 256}) {
    for (const bool causal : {false, true}) {
      const Shape shape{
          .queries = 333, .keys = 421, .query_heads = 4, .key_heads = 2, .head_dim = dim, .mask = causal_mask(causal)};
      Shape crowd = shape;
      crowd.batch = mates;
      crowd.seed = 2;
      Job one = make_job(shape), many = make_job(crowd);
      for (Tensor Job::*tensor : {&Job::query, &Job::key, &Job::value}) put(one.*tensor, many.*tensor);
      run_and_judge(one);
      run(many);
      EXPECT_EQ(rows(many.out, place, place + 1), rows(one.out, 0, 1)) << "head dim " << dim;
      EXPECT_EQ(rows(many.lse, place, place + 1), rows(one.lse, 0, 1)) << "head dim " << dim;
    }
  }
}

TEST_F(GpuRepeat, K6_AloneAndPackedAmongOthers) {
  const Shape shape{.query_heads = 4, .key_heads = 2, .mask = causal_mask(), .cu_query = {0, 333}, .cu_key = {0, 421}};
  Shape crowd = shape;
  crowd.cu_query = {0, 50, 50, 700, 1033, 1100};
  crowd.cu_key = {0, 10, 400, 1000, 1421, 1500};
  crowd.seed = 2;
  Job one = make_job(shape), many = make_job(crowd);
  const auto put_rows = [](const Tensor& from, Tensor& to, int64_t first) {
    const size_t row = static_cast<size_t>(from.spec.stride[0]) * tools::size_of(from.spec.dtype);
    std::memcpy(to.bytes.data() + to.first + static_cast<size_t>(first) * row, from.bytes.data() + from.first,
                static_cast<size_t>(from.spec.size[0]) * row);
  };
  put_rows(one.query, many.query, 700);
  put_rows(one.key, many.key, 1000);
  put_rows(one.value, many.value, 1000);
  run_and_judge(one);
  run_and_judge(many);
  EXPECT_EQ(rows(many.out, 700, 1033), rows(one.out, 0, 333));
}

}  // namespace
}  // namespace tandem::testing
