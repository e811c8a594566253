// The oracle's number formats, tensors and masks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "oracle/oracle.hpp"
#include "oracle/random.hpp"

namespace oracle {
namespace {

struct Format {
  int significand;  // bits, the hidden one included
  int lowest;       // exponent of the least normal number
  double largest;
};

Format format(Type type) {
  switch (type) {
    case Type::fp16:
      return {11, -14, 65504.0};
    case Type::bf16:
      return {8, -126, 0x1.fep127};
    case Type::fp32:
      return {24, -126, 0x1.fffffep127};
    case Type::e4m3:
      return {4, -6, 448};
    default:
      return {53, -1022, std::numeric_limits<double>::max()};
  }
}

double decode(uint16_t bits, int fraction_bits, int bias) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  if (exponent == 2 * bias + 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

double decode_fp16(uint16_t bits) {
  static const std::vector<float> table = [] {
    std::vector<float> values(65536);
    for (int i = 0; i < 65536; ++i) values[i] = static_cast<float>(decode(static_cast<uint16_t>(i), 10, 15));
    return values;
  }();
  return table[bits];
}

double decode_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

}  // namespace

double decode_e4m3(uint8_t bits) {
  const int exponent = (bits & 0x7f) >> 3, fraction = bits & 7;
  const double sign = (bits & 0x80) != 0 ? -1 : 1;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<double>::quiet_NaN();  // there is no infinity
  if (exponent == 0) return sign * std::ldexp(fraction, -9);
  return sign * std::ldexp(8 + fraction, exponent - 10);
}

double round_to(double x, Type type) {
  if (type == Type::e4m3 && std::isinf(x)) return std::copysign(448, x);
  if (type == Type::fp64 || x == 0 || !std::isfinite(x)) return x;
  if (type == Type::fp32) {
    // Half a unit beyond the largest float and more round to infinity.
    return std::abs(x) < 0x1.ffffffp127 ? static_cast<float>(x)
                                        : std::copysign(std::numeric_limits<double>::infinity(), x);
  }
  const Format f = format(type);
  const int exponent = std::max(std::ilogb(x), f.lowest);
  const double step = std::ldexp(1.0, exponent - f.significand + 1);
  const double rounded = std::nearbyint(x / step) * step;
  if (type == Type::e4m3) return std::clamp(rounded, -f.largest, f.largest);
  if (std::abs(rounded) > f.largest) return std::copysign(std::numeric_limits<double>::infinity(), x);
  return rounded;
}

double unit_roundoff(Type type) { return std::ldexp(1.0, -format(type).significand); }

double Tensor::at(int64_t batch, int64_t row, int64_t head, int64_t column) const {
  const int64_t offset = batch * stride[0] + row * stride[1] + head * stride[2] + column * stride[3];
  switch (type) {
    case Type::fp16:
      return decode_fp16(static_cast<const uint16_t*>(data)[offset]);
    case Type::bf16:
      return decode_bf16(static_cast<const uint16_t*>(data)[offset]);
    case Type::fp32:
      return static_cast<const float*>(data)[offset];
    case Type::e4m3:
      return decode_e4m3(static_cast<const uint8_t*>(data)[offset]);
    case Type::int8:
      return static_cast<const int8_t*>(data)[offset];
    default:
      return static_cast<const double*>(data)[offset];
  }
}

Tensor dense(const void* data, Type type, int64_t rows, int64_t heads, int64_t columns) {
  return {data, type, {rows * heads * columns, heads * columns, columns, 1}};
}
Tensor packed(const void* data, Type type, int64_t heads, int64_t columns) {
  return {data, type, {0, heads * columns, columns, 1}};
}
Tensor dense_lse(const float* data, int64_t heads, int64_t queries) {
  return {data, Type::fp32, {heads * queries, 1, queries, 0}};
}
Tensor packed_lse(const float* data, int64_t total) { return {data, Type::fp32, {0, 1, total, 0}}; }

std::vector<Sequence> dense_sequences(int64_t batch, int64_t queries, int64_t keys) {
  return std::vector<Sequence>(batch, Sequence{0, queries, 0, keys});
}

std::vector<Sequence> packed_sequences(const std::vector<int32_t>& queries, const std::vector<int32_t>& keys) {
  std::vector<Sequence> sequences;
  for (size_t b = 0; b + 1 < queries.size(); ++b) {
    sequences.push_back({queries[b], queries[b + 1] - queries[b], keys[b], keys[b + 1] - keys[b]});
  }
  return sequences;
}

bool sees(const Problem& problem, const Sequence& sequence, int64_t i, int64_t j) {
  if (j < 0 || j >= sequence.keys) return false;
  const int64_t distance = j - (i + problem.diagonal.value_or(sequence.keys - sequence.queries));
  if (problem.causal && distance > 0) return false;
  if (problem.right >= 0 && distance > problem.right) return false;
  return problem.left < 0 || -distance <= problem.left;
}

std::vector<RowIndex> all_rows(const Problem& problem) {
  std::vector<RowIndex> rows;
  for (size_t b = 0; b < problem.sequences.size(); ++b) {
    for (int64_t h = 0; h < problem.query_heads; ++h) {
      for (int64_t i = 0; i < problem.sequences[b].queries; ++i) rows.push_back({static_cast<int64_t>(b), h, i});
    }
  }
  return rows;
}

std::vector<RowIndex> sampled_rows(const Problem& problem, int64_t count, uint64_t seed) {
  int64_t total = 0;
  for (const Sequence& s : problem.sequences) total += s.queries * problem.query_heads;
  if (total <= count) return all_rows(problem);
  std::vector<RowIndex> rows;
  const int64_t batch = static_cast<int64_t>(problem.sequences.size());
  for (uint64_t n = 0; static_cast<int64_t>(rows.size()) < count; ++n) {
    const int64_t b = integer(seed, 3 * n, 0, batch - 1);
    const int64_t queries = problem.sequences[b].queries;
    if (queries == 0) continue;
    // One in four is at an end, where masks and partial tiles go wrong first.
    const int64_t i = n % 8 == 0 ? 0 : (n % 8 == 1 ? queries - 1 : integer(seed, 3 * n + 2, 0, queries - 1));
    rows.push_back({b, integer(seed, 3 * n + 1, 0, problem.query_heads - 1), i});
  }
  return rows;
}

}  // namespace oracle
