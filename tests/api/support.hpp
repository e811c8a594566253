// Problems, arguments and a backend that does nothing, for tests of what surrounds a backend.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "plan/executable.hpp"
#include "plan/spec.hpp"

namespace tandem::testing {

inline TensorSpec bf16_tensor(std::initializer_list<int64_t> size) { return contiguous(Dtype::bf16, cpu(), size); }

/// Batch 2, 32 queries, 48 keys, 8 query heads on 2 key heads, head dims 64 and 128.
inline Problem dense_problem() {
  Problem problem;
  problem.query = bf16_tensor({2, 32, 8, 64});
  problem.key = bf16_tensor({2, 48, 2, 64});
  problem.value = bf16_tensor({2, 48, 2, 128});
  problem.lse = contiguous(Dtype::fp32, cpu(), {2, 8, 32});
  return problem;
}

/// The same packed: 3 sequences in 64 rows of query and 96 of key.
inline Problem packed_problem() {
  Problem problem;
  problem.query = bf16_tensor({64, 8, 64});
  problem.key = bf16_tensor({96, 2, 64});
  problem.value = bf16_tensor({96, 2, 128});
  problem.lse = contiguous(Dtype::fp32, cpu(), {8, 64});
  problem.lengths = {3, 40, 60, true, true, false, false};
  return problem;
}

inline Problem backward_problem() {
  Problem problem = dense_problem();
  problem.out = problem.grad_out = bf16_tensor({2, 32, 8, 128});
  problem.grad_query = problem.query;
  problem.grad_key = problem.key;
  problem.grad_value = problem.value;
  return problem;
}

/// Counts runs; may throw instead.
class FakeExecutable : public internal::Executable {
 public:
  FakeExecutable(const internal::Attention& attention, size_t bytes) : Executable(attention), bytes_(bytes) {}
  size_t workspace_bytes() const noexcept override { return bytes_; }
  std::string describe() const override { return "fake\n"; }
  Status run(const Arguments&, void*, void*) const noexcept override {
    ++runs;
    return {};
  }
  mutable int runs = 0;

 private:
  size_t bytes_;
};

/// Memory for every view of a plan, and the arguments that fit it.
class Bench {
 public:
  Bench(const Problem& problem, Pass pass = Pass::forward, size_t workspace_bytes = 0) {
    const auto attention = internal::resolve(pass, problem);
    EXPECT_TRUE(attention.ok()) << attention.status().message;
    if (!attention.ok()) return;
    executable = std::make_shared<FakeExecutable>(*attention, workspace_bytes);
    const internal::Attention& a = *attention;
    arguments.query = view(a.query);
    arguments.key = view(a.key);
    arguments.value = view(a.value);
    arguments.out = view(a.out);
    arguments.lse = view(a.lse);
    arguments.grad_out = view(a.grad_out);
    arguments.grad_query = view(a.grad_query);
    arguments.grad_key = view(a.grad_key);
    arguments.grad_value = view(a.grad_value);
    if (a.packed_query) arguments.cu_query = lengths(cu_query, even(a.total_query, a.batch));
    if (a.packed_key) arguments.cu_key = lengths(cu_key, even(a.total_key, a.batch));
    if (a.used_query) arguments.used_query = lengths(used_query, std::vector<int32_t>(a.batch, 1));
    if (a.used_key) arguments.used_key = lengths(used_key, std::vector<int32_t>(a.batch, 1));
    arguments.quantized_query = view(a.quantized_query);
    arguments.quantized_key = view(a.quantized_key);
    arguments.quantized_value = view(a.quantized_value);
    arguments.query_scale = view(a.query_scale);
    arguments.key_scale = view(a.key_scale);
    arguments.value_scale = view(a.value_scale);
    arguments.value_mean = view(a.value_mean);
    arguments.rope_cos = view(a.rope_cos);
    arguments.rope_sin = view(a.rope_sin);
    if (a.out.dtype == Dtype::e4m3) arguments.out_scale = view(contiguous(Dtype::fp32, cpu(), {1}));
    if (a.sinks) arguments.sinks = view(contiguous(Dtype::fp32, cpu(), {a.query_heads}));
  }

  Status run(void* workspace = nullptr, size_t bytes = 0) const {
    return Plan(executable).run(arguments, workspace, bytes);
  }

  TensorView view(const TensorSpec& spec) {
    if (!spec.present()) return {};
    int64_t extent = 1;
    for (int i = 0; i < spec.rank; ++i) extent += spec.size[i] == 0 ? 0 : (spec.size[i] - 1) * spec.stride[i];
    const size_t bytes = static_cast<size_t>(extent) * internal::element_bytes(spec.dtype);
    memory_.emplace_back(bytes / sizeof(Line) + 1);
    return {spec, memory_.back().data()};
  }

  Arguments arguments;
  std::shared_ptr<FakeExecutable> executable;
  std::vector<int32_t> cu_query, cu_key, used_query, used_key;

 private:
  struct alignas(256) Line {
    char bytes[256];
  };

  static std::vector<int32_t> even(int64_t total, int64_t batch) {
    std::vector<int32_t> result;
    for (int64_t i = 0; i <= batch; ++i) result.push_back(static_cast<int32_t>(batch == 0 ? 0 : total * i / batch));
    return result;
  }

  TensorView lengths(std::vector<int32_t>& held, std::vector<int32_t> values) {
    held = std::move(values);
    return {contiguous(Dtype::int32, cpu(), {static_cast<int64_t>(held.size())}), held.data()};
  }

  std::vector<std::vector<Line>> memory_;
};

/// The status has this code, names this argument, and its message holds this word.
inline void expect_fault(const Status& status, Code code, const std::string& argument, const std::string& word) {
  EXPECT_EQ(name(status.code), std::string(name(code))) << status.message;
  EXPECT_EQ(status.argument, argument) << status.message;
  EXPECT_NE(std::string(status.message).find(word), std::string::npos) << status.message << " lacks: " << word;
}

}  // namespace tandem::testing
