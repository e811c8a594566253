// Cases of 8-bit attention through the public interface on the CPU: the library's quantiser, then its forward. Names
// begin with the id of the known fault of other libraries that a case stands for, where there is one.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "oracle/random.hpp"
#include "tools/accuracy/measure.hpp"
#include "tools/failure.hpp"
#include "tools/judge.hpp"

namespace tandem::tools {
namespace {

using Number = std::function<float(int which, int64_t row, int64_t index)>;

float normal(int which, int64_t index) {
  return oracle::normal(40 + static_cast<uint64_t>(which), static_cast<uint64_t>(index));
}

/// A bf16 job of one sequence and two heads; numbers by tensor (query, key, value), row and index.
Job job_of(int64_t queries, int64_t keys, int64_t dim, const Number& number) {
  constexpr int64_t heads = 2;
  const auto tensor = [&](int which, int64_t rows) {
    std::vector<float> values(static_cast<size_t>(rows * heads * dim));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      values[i] = number(which, index / (heads * dim), index);
    }
    return tensor_of(array_of(values, {1, rows, heads, dim}, Dtype::bf16));
  };
  Job job;
  job.query = tensor(0, queries);
  job.key = tensor(1, keys);
  job.value = tensor(2, keys);
  job.out = poisoned(Dtype::bf16, {1, queries, heads, dim});
  job.lse = poisoned(Dtype::fp32, {1, heads, queries});
  return job;
}

Quantising blocks() {
  Quantising how;
  how.quantization.hadamard = true;
  return how;
}

/// Quantises and attends on the CPU.
Job attended(const Job& source, const Quantising& how) {
  const auto memory = host_memory();
  Job job = quantise(source, how, Backend::cpu, *memory);
  const auto planned = plan(Pass::forward, problem_of(job, cpu()));
  require(planned.status(), "planning");
  Execution execution(job, *planned, *memory);
  require(execution.run(), "running");
  execution.fetch(job);
  return job;
}

std::vector<float> numbers(const Tensor& tensor) { return floats(array_of(tensor), "test"); }

class Fp8 : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = available(Backend::cpu);
    if (!status.ok()) GTEST_SKIP() << status.message;
  }
};

TEST_F(Fp8, L1ValueOfZeros) {
  const Job job = attended(
      job_of(70, 300, 64, [](int which, int64_t, int64_t i) { return which == 2 ? 0 : normal(which, i); }), blocks());
  for (const float scale : numbers(job.value_scale)) EXPECT_TRUE(std::isfinite(scale) && scale > 0) << scale;
  for (const float x : numbers(job.out)) ASSERT_EQ(x, 0);
}

TEST_F(Fp8, L1KeysOfZerosGiveTheMean) {
  const Job job = attended(
      job_of(70, 300, 64, [](int which, int64_t, int64_t i) { return which == 1 ? 0 : normal(which, i); }), blocks());
  for (const float lse : numbers(job.lse)) ASSERT_NEAR(lse, std::log(300.0F), 1e-5);
  const auto verdict = judge(job, -1);
  EXPECT_TRUE(verdict.ok) << verdict.text;
}

TEST_F(Fp8, L2MaximumThatGrowsLate) {
  for (const float growth : {1.0F, 8.0F, 40.0F}) {
    const Job job =
        attended(job_of(64, 1024, 128,
                        [&](int which, int64_t row, int64_t i) {
                          return normal(which, i) * (which == 1 ? 1 + growth * static_cast<float>(row) / 1024 : 1);
                        }),
                 blocks());
    const auto verdict = judge(job, -1);
    EXPECT_TRUE(verdict.ok) << growth << ": " << verdict.text;
  }
}

TEST_F(Fp8, OneKeyIsItsValue) {
  // The reference is the maximum itself, so that the only probability is exact.
  const Job source = job_of(5, 1, 64, [](int which, int64_t, int64_t i) { return normal(which, i); });
  const Job job = attended(source, blocks());
  const Dequantised stored = dequantised(job);
  const auto out = numbers(job.out);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], stored.value[i % 128], std::abs(out[i]) / 256);
}

TEST_F(Fp8, ValueMeanComesBack) {
  const Job source = job_of(
      33, 500, 64, [](int which, int64_t, int64_t i) { return which == 2 ? 40 + normal(2, i) : normal(which, i); });
  Quantising how = blocks();
  how.out = Dtype::fp16;
  const auto error = [&](bool mean) {
    how.quantization.value_mean = mean;
    const Job job = attended(source, how);
    const auto rows = oracle::all_rows(oracle_problem(source));
    const auto exact = oracle::forward(oracle_problem(source), rows);
    const oracle::Tensor out = oracle_view(job.out);
    double worst = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int64_t c = 0; c < 64; ++c) {
        worst =
            std::max(worst, std::abs(out.at(0, rows[r].query, rows[r].head, c) - exact[r].out[static_cast<size_t>(c)]));
      }
    }
    return worst;
  };
  EXPECT_LT(error(true) * 3, error(false)) << "rounding steps are as wide as values are large";
}

TEST_F(Fp8, ExponentScaleCarriesEveryGranularity) {
  // The same numbers whose scales differ by heads and blocks alone: each way must come to the same attention.
  const Job source = job_of(64, 384, 64, [](int which, int64_t row, int64_t i) {
    return normal(which, i) * static_cast<float>(which == 2 ? 1 << (2 * (row / 128)) : 1);
  });
  for (const Granularity granularity : {Granularity::tensor, Granularity::head, Granularity::block}) {
    for (const ValueLayout layout : {ValueLayout::rows, ValueLayout::packed}) {
      Quantising how = blocks();
      how.quantization.query = how.quantization.key = how.quantization.value = granularity;
      how.quantization.value_layout = layout;
      const auto verdict = judge(attended(source, how), -1);
      EXPECT_TRUE(verdict.ok) << static_cast<int>(granularity) << " " << static_cast<int>(layout) << verdict.text;
    }
  }
}

TEST_F(Fp8, NanStaysInTheRowsThatSeeIt) {
  Job source = job_of(40, 40, 64, [](int which, int64_t row, int64_t i) {
    return which == 0 && row == 7 && i % 64 == 3 ? std::numeric_limits<float>::quiet_NaN() : normal(which, i);
  });
  source.problem.mask.causal = true;
  Quantising how = blocks();
  how.quantization.query = Granularity::head;
  const auto out = numbers(attended(source, how).out);
  for (size_t i = 0; i < out.size(); ++i) {
    const bool poisoned_row = i / 128 == 7;
    ASSERT_EQ(std::isnan(out[i]), poisoned_row) << i;
  }
}

TEST_F(Fp8, L5OutputSaturates) {
  const Job source =
      job_of(10, 60, 64, [](int which, int64_t, int64_t i) { return which == 2 ? 100 : normal(which, i); });
  Quantising how = blocks();
  how.out = Dtype::e4m3;
  how.out_scale = 0.125F;  // 100 is 800 steps, beyond 448
  const Job job = attended(source, how);
  for (const double x : dequantised(job).out) ASSERT_EQ(x, 448 * 0.125);
}

TEST_F(Fp8, MethodsKeepTheirOrder) {
  // The paper's claim (section 4.3), on a small sample of its distribution: blocks and Hadamard beat one scale a
  // tensor, int8 query and key beat e4m3, 16 bits beat all.
  AccuracyOptions options;
  options.backend = Backend::cpu;
  options.keys = 2048;
  options.rows = 64;
  options.seeds = 2;
  std::map<std::string, double> rmse;
  for (const AccuracyRow& row : measure_paper(options, *host_memory())) {
    ASSERT_EQ(row.note, "") << row.method;
    rmse[row.method] = row.rmse;
  }
  EXPECT_LT(rmse["fp16"] * 20, rmse["int8-qk"]);
  EXPECT_LT(rmse["int8-qk"], rmse["fp8"]);
  EXPECT_LT(rmse["fp8"] * 1.25, rmse["fp8-per-tensor"]);
}

}  // namespace
}  // namespace tandem::tools
