// The oracle: attention in plain float64 with mask code of its own, against which tools and tests judge the product. It
// shares nothing with src/, so that no fault can hide in both. Beside the exact result it computes the "standard
// computation", what a careful framework does in the tensors' own precision without any blocking: its error against
// float64 is the yardstick that the product's error is held to.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace oracle {

enum class Type { fp16, bf16, fp32, fp64, e4m3, int8 };

/// A strided tensor (batch, row, head, column); strides in elements. Packed tensors have batch stride 0.
struct Tensor {
  const void* data = nullptr;
  Type type = Type::fp32;
  std::array<int64_t, 4> stride{};

  double at(int64_t batch, int64_t row, int64_t head, int64_t column) const;
};

/// A row-major dense tensor of (batch, rows, heads, columns).
Tensor dense(const void* data, Type type, int64_t rows, int64_t heads, int64_t columns);
/// A row-major packed tensor of (rows, heads, columns).
Tensor packed(const void* data, Type type, int64_t heads, int64_t columns);
/// A log-sum-exp tensor (batch, heads, queries) in float32, as a tensor of one column.
Tensor dense_lse(const float* data, int64_t heads, int64_t queries);
/// A log-sum-exp tensor (heads, total queries) in float32.
Tensor packed_lse(const float* data, int64_t total);

/// Where a sequence lies: its first row within the batch entry (or within the packed tensor), and its length.
struct Sequence {
  int64_t first_query = 0, queries = 0;
  int64_t first_key = 0, keys = 0;
};
std::vector<Sequence> dense_sequences(int64_t batch, int64_t queries, int64_t keys);
/// From cumulative lengths, batch + 1 of each.
std::vector<Sequence> packed_sequences(const std::vector<int32_t>& queries, const std::vector<int32_t>& keys);

struct Problem {
  std::vector<Sequence> sequences;  // one a batch entry
  int64_t query_heads = 1, key_heads = 1, head_dim = 0, value_dim = 0;
  Tensor query, key, value;
  double scale = 1;
  double softcap = 0;
  bool causal = false;
  int64_t left = -1, right = -1;    // inclusive window; -1 is unlimited
  std::optional<int64_t> diagonal;  // absent: keys - queries of each sequence
  const float* sinks = nullptr;     // a logit a query head
  // 8-bit attention, whose tensors are given by their values (stored element times scale), in float64. `value` lacks
  // the mean, without data where there is none; the scale of each value row is what its probability is rounded with.
  Tensor value_mean, value_scale;  // (batch, 0, key head, column); (batch, row, key head, 0)
  Type out_type = Type::fp64;      // what `quantised` rounds the result to, once it is divided by out_scale
  double out_scale = 1;
};

/// Whether query i sees key j.
bool sees(const Problem& problem, const Sequence& sequence, int64_t i, int64_t j);

enum class Arithmetic {
  exact,     // float64 throughout
  standard,  // float32 scores and softmax, probabilities and result rounded to the tensors' type
  quantised  // exact but for what 8-bit attention must round: probabilities to e4m3, the result to out_type
};

struct RowIndex {
  int64_t batch, head, query;
};
std::vector<RowIndex> all_rows(const Problem& problem);
/// At most `count` rows, spread by a seed over all sequences; first and last rows of sequences are preferred.
std::vector<RowIndex> sampled_rows(const Problem& problem, int64_t count, uint64_t seed = 1);

struct Row {
  std::vector<double> out;
  double lse = 0;        // natural logarithm; -inf where no key is seen
  double magnitude = 0;  // the largest sum of p * |v| over the columns: what rounding errors scale with
  double score = 0;      // the largest |score| seen
};
/// The results for rows, in their order.
std::vector<Row> forward(const Problem& problem, const std::vector<RowIndex>& rows,
                         Arithmetic arithmetic = Arithmetic::exact);
Row forward_row(const Problem& problem, const RowIndex& row, Arithmetic arithmetic = Arithmetic::exact);

/// Gradients in compact order, sequence after sequence: query (row, query_heads, head_dim), key (row, key_heads,
/// head_dim), value (row, key_heads, value_dim). The magnitudes are what rounding errors of each scale with: the
/// largest sum of absolute terms that an element of it may have.
struct Gradients {
  std::vector<double> query, key, value;
  double query_magnitude = 0, key_magnitude = 0, value_magnitude = 0;
};
Gradients backward(const Problem& problem, const Tensor& grad_out, Arithmetic arithmetic = Arithmetic::exact);

/// Rounds to a type and back, to nearest even.
double round_to(double x, Type type);
/// The relative error that one rounding to a type may make.
double unit_roundoff(Type type);

struct Verdict {
  bool ok = true;
  std::string text;           // one line: the figures, or the first thing that is wrong
  double error = 0;           // largest |computed - exact|
  double standard_error = 0;  // the same of the standard computation
  double bound = 0;           // what error was held to
  double cosine = 1;
  double lse_error = 0;
};

/// The number that an 8-bit element stands for.
double decode_e4m3(uint8_t bits);

/// Judges a forward result on some rows: the error is at most twice that of the standard computation plus a rounding
/// term, the cosine is as near to 1, infinities and NaN stand where the exact result has them. `lse` may have no data.
Verdict judge_forward(const Problem& problem, const std::vector<RowIndex>& rows, const Tensor& out, const Tensor& lse);

/// The same of 8-bit attention, where the quantised computation takes the standard one's place. `accumulation` is the
/// relative error that a sum of the backend's may have: the tensor cores truncate.
Verdict judge_quantised(const Problem& problem, const std::vector<RowIndex>& rows, const Tensor& out, const Tensor& lse,
                        double accumulation);

/// The same for gradients, all of them; a tensor without data is left out.
Verdict judge_backward(const Problem& problem, const Tensor& grad_out, const Tensor& grad_query, const Tensor& grad_key,
                       const Tensor& grad_value);

}  // namespace oracle
