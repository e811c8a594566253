// Values that have gone wrong in other attention libraries, by their public bug reports: no keys, huge scores, NaN
// beyond valid lengths, masks off the diagonal. (A letter and a number in a test's name stand for one such report.)
#include <cmath>
#include <limits>

#include "gpu/support.hpp"

namespace tandem::testing {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

void expect_all(const Tensor& tensor, float expected, const char* what) {
  for (const float x : values(tensor)) ASSERT_EQ(x, expected) << what;
}

class GpuValues : public Gpu {};

TEST_F(GpuValues, A1_NoKeys) {
  for (const auto& [dim, value_dim] : std::vector<std::pair<int64_t, int64_t>>{{128, 128}, {192, 128}}) {
    for (const int64_t queries : {1, 64, 128, 256}) {
      for (const bool causal : {false, true}) {
        Job job = make_job({.batch = 4,
                            .queries = queries,
                            .keys = 0,
                            .query_heads = 16,
                            .key_heads = 16,
                            .head_dim = dim,
                            .value_dim = value_dim,
                            .mask = causal_mask(causal)});
        run(job);
        expect_all(job.out, 0, "out");
        expect_all(job.lse, -infinity, "lse");
      }
    }
  }
}

TEST_F(GpuValues, A3_RequestsWithoutKeysOverwriteTheirRows) {
  for (const bool causal : {false, true}) {
    Job job = make_job({.query_heads = 4,
                        .key_heads = 2,
                        .mask = causal_mask(causal),
                        .cu_query = {0, 4, 8, 12},
                        .cu_key = {0, 70, 70, 75}});
    run_and_judge(job);
    const Bytes empty = rows(job.out, 4, 8);
    EXPECT_EQ(empty, Bytes(empty.size())) << "rows of the request without keys are exactly 0";
  }
}

TEST_F(GpuValues, A8_CausalWithMoreQueriesThanKeys) {
  Job job = make_job({.queries = 2048, .keys = 1024, .query_heads = 2, .key_heads = 2, .mask = causal_mask()});
  run_and_judge(job);
  const auto out = values(job.out), lse = values(job.lse);
  for (size_t row = 0; row < 1024; ++row) {
    ASSERT_EQ(lse[row], -infinity) << "row " << row;
    for (size_t column = 0; column < 256; ++column) ASSERT_EQ(out[row * 256 + column], 0) << "row " << row;
  }
  EXPECT_TRUE(std::isfinite(lse[1024]));
}

TEST_F(GpuValues, B2_ScoresFarBelowAnySentinel) {
  Job job = make_job({.queries = 70, .keys = 64});
  job.query = tools::tensor_of(constant_array({1, 70, 1, 128}, Dtype::bf16, 40));
  job.key = tools::tensor_of(constant_array({1, 64, 1, 128}, Dtype::bf16, -48));  // every score is -245,760
  run_and_judge(job);
  const double expected = -245760 / std::sqrt(128.0) + std::log(64.0);
  for (const float lse : values(job.lse)) ASSERT_NEAR(lse, expected, 0.01);
}

TEST_F(GpuValues, B3_OneHugeScore) {
  for (const auto& [dtype, x] :
       std::vector<std::pair<Dtype, float>>{{Dtype::bf16, 133120.0F}, {Dtype::fp16, 60000.0F}}) {
    Job job = make_job({.dtype = dtype, .queries = 1, .keys = 1, .head_dim = 64});
    job.query = job.key = job.value = tools::tensor_of(constant_array({1, 1, 1, 64}, dtype, x));
    run(job);
    expect_all(job.out, x, name(dtype));
  }
}

TEST_F(GpuValues, C1_NaNBehindUsedKeys) {
  Job job = make_job({.dtype = Dtype::fp16, .batch = 2, .queries = 1, .keys = 3, .head_dim = 64, .used_key = {1, 3}});
  job.query = tools::tensor_of(constant_array({2, 1, 1, 64}, Dtype::fp16, 0.5F));
  Job clean = job;
  for (Tensor* tensor : {&job.key, &job.value}) set_rows(*tensor, 0, 1, 3, not_a_number);
  run_and_judge(job);
  run(clean);
  EXPECT_TRUE(same(job.out, clean.out));
  for (const float x : values(job.out)) EXPECT_TRUE(std::isfinite(x));
}

TEST_F(GpuValues, C2_NaNAndInfinityBehindUsedKeysChangeNoBit) {
  const std::vector<int32_t> used = {32, 64, 96, 48};
  Job clean = make_job(
      {.batch = 4, .queries = 1, .keys = 128, .query_heads = 8, .key_heads = 8, .head_dim = 64, .used_key = used});
  for (Tensor* tensor : {&clean.key, &clean.value})
    for (int64_t b = 0; b < 4; ++b) set_rows(*tensor, b, used[static_cast<size_t>(b)], 128, 0);
  Job base = clean;
  run_and_judge(clean);
  for (const float garbage : {not_a_number, infinity}) {
    Job job = base;
    for (Tensor* tensor : {&job.key, &job.value})
      for (int64_t b = 0; b < 4; ++b) set_rows(*tensor, b, used[static_cast<size_t>(b)], 128, garbage);
    run(job);
    EXPECT_TRUE(same(job.out, clean.out)) << garbage;
    EXPECT_TRUE(same(job.lse, clean.lse)) << garbage;
  }
}

TEST_F(GpuValues, C2_NaNBehindUsedQueriesStaysThere) {
  Job job =
      make_job({.batch = 2, .queries = 100, .keys = 150, .query_heads = 2, .key_heads = 2, .used_query = {30, 0}});
  set_rows(job.query, 0, 30, 100, not_a_number);
  set_rows(job.query, 1, 0, 100, not_a_number);
  run_and_judge(job);
  for (const float x : values(job.out)) ASSERT_TRUE(std::isfinite(x));
  const auto lse = values(job.lse);
  for (size_t row = 30; row < 100; ++row) EXPECT_EQ(lse[row], -infinity) << "row " << row;
}

TEST_F(GpuOnly, C7_RowsBehindTheLastSequence) {
  // On the CPU such lengths are an error. On the GPU they can't be seen without waiting, so that the rows get zeros.
  Job job = make_job({.query_heads = 2, .key_heads = 2, .cu_query = {0, 10, 40}, .cu_key = {0, 10, 40}});
  auto planned = plan_of(job);
  ASSERT_TRUE(planned.ok()) << planned.status().message;
  job.cu_query = job.cu_key = int32_tensor({0, 10, 32});
  tools::Execution execution(job, *planned, *memory_);
  ASSERT_TRUE(execution.run().ok());
  execution.fetch(job);
  expect_right(job);
  const Bytes rest = rows(job.out, 32, 40);
  EXPECT_EQ(rest, Bytes(rest.size())) << "rows behind the last sequence are exactly 0";
}

TEST_F(GpuValues, D2_WindowsThatAreCausal) {
  for (const int64_t rows : {int64_t{1024}, int64_t{16384}}) {
    const auto result = [&](Mask mask) {
      Job job = make_job({.queries = rows, .keys = rows, .mask = mask});
      run(job);
      return job;
    };
    const Job causal = result(causal_mask());
    expect_right(causal);
    EXPECT_TRUE(same(result(window_mask(-1, 0)).out, causal.out)) << "(-1, 0) is causal";
    const auto expected = values(causal.out);
    for (const int64_t left : {rows, rows - 1}) {
      const auto out = values(result(window_mask(left, 0)).out);
      double error = 0;
      for (size_t i = 0; i < out.size(); ++i) error = std::max<double>(error, std::fabs(out[i] - expected[i]));
      EXPECT_LT(error, 0.02) << "(" << left << ", 0) of " << rows << " rows";
    }
  }
}

TEST_F(GpuValues, D3_RowsOutsideTheWindow) {
  Job job = make_job({.queries = 129, .keys = 33, .mask = window_mask(32, 64)});
  run_and_judge(job);
  const auto lse = values(job.lse);
  for (size_t row = 0; row < 32; ++row) EXPECT_EQ(lse[row], -infinity) << "row " << row;
  EXPECT_TRUE(std::isfinite(lse[32]));
}

TEST_F(GpuValues, D4_ABoundOfZeroIsABound) {
  Job job = make_job({.queries = 200, .keys = 200, .query_heads = 2, .key_heads = 2, .mask = window_mask(17, 0)});
  run_and_judge(job);
  Job itself = make_job({.queries = 200, .keys = 200, .query_heads = 2, .key_heads = 2, .mask = window_mask(0, 0)});
  run(itself);
  EXPECT_TRUE(same(itself.out, itself.value)) << "each query sees its own key alone";
}

TEST_F(GpuValues, NaNInAQueryStaysInItsRow) {
  Job job = make_job({.queries = 200, .keys = 300});
  Job clean = job;
  set_rows(job.query, 0, 77, 78, not_a_number);
  run(job);
  run(clean);
  const auto out = values(job.out), expected = values(clean.out);
  for (size_t i = 0; i < out.size(); ++i) {
    if (i / 128 == 77)
      ASSERT_TRUE(std::isnan(out[i])) << i;
    else
      ASSERT_EQ(out[i], expected[i]) << "row " << i / 128;
  }
}

}  // namespace
}  // namespace tandem::testing
