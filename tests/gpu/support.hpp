// What the GPU's tests share: jobs of given shapes, their run and judgement, and a fixture that skips where there is no
// Hopper GPU.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tools/judge.hpp"
#include "tools/sweep.hpp"

namespace tandem::testing {

using tools::Array;
using tools::Bytes;
using tools::Job;
using tools::Tensor;

struct Shape {
  Dtype dtype = Dtype::bf16;
  int64_t batch = 1, queries = 128, keys = 128, query_heads = 1, key_heads = 1, head_dim = 128;
  int64_t value_dim = 0;  // 0: as head_dim
  Mask mask = {};
  std::vector<int32_t> cu_query = {}, cu_key = {};      // packed where not empty; `batch` and lengths follow
  std::vector<int32_t> used_query = {}, used_key = {};  // where not empty
  uint64_t seed = 1;
};

Mask causal_mask(bool causal = true);
Mask window_mask(int64_t left, int64_t right);

/// Random inputs, outputs all NaN.
Job make_job(const Shape& shape);

/// As tools::random_array, but large ones repeat themselves after a million elements or so, at no multiple of anything.
Array quick_array(std::vector<int64_t> shape, Dtype dtype, uint64_t seed);
Array constant_array(const std::vector<int64_t>& shape, Dtype dtype, float value);
Tensor int32_tensor(const std::vector<int32_t>& values);

/// A view of `whole` (any shape): element 0 lies `offset` elements from its first.
Tensor view_of(const Array& whole, const std::vector<int64_t>& size, const std::vector<int64_t>& stride,
               int64_t offset);

std::vector<float> values(const Tensor& tensor);
/// Whether two tensors hold the same bytes, whatever their strides.
bool same(const Tensor& a, const Tensor& b);
/// Rows [first, last) of the first dimension, or of the second within a batch entry, as bytes.
Bytes rows(const Tensor& tensor, int64_t first, int64_t last);

/// Sets the rows [first, last) of a batch entry to a value, in a row-major tensor (batch, row, ...).
void set_rows(Tensor& tensor, int64_t batch, int64_t first, int64_t last, float value);

/// The backend under test: sm90. The tests themselves can be tried without a GPU by TANDEM_GPU_TESTS_ON=cpu; those that
/// need streams or more memory than a laptop has are skipped then.
Backend backend();

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override;

  Result<Plan> plan_of(const Job& job, Options options = {}) const;
  /// Plans, runs and fetches. Guard words round the outputs must be intact.
  void run(Job& job, const Options& options = {});
  /// Judges a finished job against the oracle, on as many rows as is quick.
  static void expect_right(const Job& job);
  void run_and_judge(Job& job) {
    run(job);
    expect_right(job);
  }

  std::unique_ptr<tools::Memory> memory_;
};

/// For tests that call the driver.
class GpuOnly : public Gpu {
 protected:
  void SetUp() override;
};

}  // namespace tandem::testing
