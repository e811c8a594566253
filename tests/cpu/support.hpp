// What the CPU's tests share: tensors with guard words round them, a description of a case, and its run and judgement.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "oracle/oracle.hpp"
#include "tandem/tandem.hpp"

namespace testing_support {

enum class Layout {
  contiguous,  // (batch, row, head, column)
  head_major,  // (batch, head, row, column) in memory
  gaps         // rows and heads further apart than they need be, by odd amounts
};

/// A tensor whose every byte that isn't an element's is a guard; elements begin as NaN.
class Tensor {
 public:
  Tensor() = default;
  /// `size` is (batch, row, head, column), or (row, head, column) for a packed one.
  Tensor(tandem::Dtype dtype, const std::vector<int64_t>& size, Layout layout = Layout::contiguous);
  /// With strides of the caller's choice.
  Tensor(tandem::Dtype dtype, const std::vector<int64_t>& size, const std::vector<int64_t>& stride);

  const tandem::TensorSpec& spec() const { return spec_; }
  tandem::TensorView view() const { return {spec_, const_cast<uint8_t*>(data())}; }
  oracle::Tensor oracle() const;
  /// For a log-sum-exp: (batch, head, row), packed (head, row).
  oracle::Tensor oracle_lse() const;

  int64_t offset(const std::vector<int64_t>& index) const;
  void set(const std::vector<int64_t>& index, float value);
  double get(const std::vector<int64_t>& index) const;
  /// Fills the rows [first, last) of a batch entry (ignored if packed) with normal numbers; row is the second of four
  /// dimensions, the first of three.
  void fill_normal(int64_t batch, int64_t first, int64_t last, uint64_t seed, float deviation = 1);
  void fill(float value);
  /// The elements' bytes in row-major order, for comparisons bit by bit.
  std::vector<uint8_t> content() const;
  bool guards_intact() const;

 private:
  const uint8_t* data() const { return bytes_.data() + front; }
  size_t element_bytes() const;
  template <class Visit>
  void for_each(const Visit& visit) const;

  static constexpr size_t front = 256;
  tandem::TensorSpec spec_;
  std::vector<uint8_t> bytes_;
};

struct Config {
  tandem::Dtype dtype = tandem::Dtype::fp32;
  int64_t batch = 1, queries = 64, keys = 64, query_heads = 1, key_heads = 1, head_dim = 64, value_dim = 64;
  tandem::Mask mask;
  std::optional<float> scale;
  float softcap = 0;
  bool sinks = false;
  std::vector<int32_t> cu_query, cu_key;      // packed where not empty
  std::vector<int32_t> used_query, used_key;  // used lengths where not empty
  int64_t total_query = -1, total_key = -1;   // rows of packed tensors; -1: the last cumulative length
  Layout layout = Layout::contiguous, out_layout = Layout::contiguous;
  float deviation = 1;
  uint64_t seed = 1;
  int threads = 2;

  std::string text() const;
};

/// A dense and a packed problem in short.
Config shape(tandem::Dtype dtype, int64_t batch, int64_t queries, int64_t keys, int64_t query_heads, int64_t key_heads,
             int64_t dim, bool causal = false);
Config packed(tandem::Dtype dtype, std::vector<int32_t> cu_query, std::vector<int32_t> cu_key, int64_t query_heads,
              int64_t key_heads, int64_t dim, bool causal = false);

/// A case with its tensors: inputs normal where lengths say that there is data and NaN elsewhere, outputs NaN.
class Case {
 public:
  explicit Case(const Config& config);

  tandem::Problem problem() const;
  tandem::Arguments arguments() const;
  oracle::Problem oracle_problem() const;
  /// Plans and runs the forward pass with a workspace full of NaN.
  tandem::Status run();
  oracle::Verdict judge() const;
  /// Runs, and expects a right result, intact guards, and zeros in the rows that no sequence uses.
  void check();

  tandem::Problem backward_problem() const;
  tandem::Arguments backward_arguments() const;
  /// Runs the forward pass and then the backward pass.
  tandem::Status run_backward();
  oracle::Verdict judge_backward() const;
  void check_backward();

  Config config;
  Tensor query, key, value, out, lse;
  Tensor grad_out, grad_query, grad_key, grad_value;
  std::vector<float> sinks;

 private:
  void expect_cleared(const Tensor& tensor, bool of_query) const;
};

/// Runs a plan with a workspace of NaN; for tests that build their own problem.
tandem::Status run(tandem::Pass pass, const tandem::Problem& problem, const tandem::Arguments& arguments);

}  // namespace testing_support
