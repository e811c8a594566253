// The problem with every default filled in and every argument checked: what backends see. Made by plan/resolve.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "common/mask.hpp"
#include "tandem/tandem.hpp"

namespace tandem::internal {

namespace sm90::forward {
struct Variant;
}

/// Element strides of a (batch, row, head, dim) tensor whose last stride is 1; batch is 0 for a packed one.
struct Strides {
  int64_t batch, row, head;
};

struct Attention {
  Pass pass = Pass::forward;
  Backend backend = Backend::cpu;  // never automatic
  Device device;
  Dtype dtype = Dtype::bf16;
  int64_t batch = 0;
  int64_t max_query = 0, max_key = 0;      // the longest sequence (the padded length where lengths are dense)
  int64_t total_query = 0, total_key = 0;  // rows of the tensors: packed totals, or batch * max
  int64_t query_heads = 0, key_heads = 0, head_dim = 0, value_dim = 0;
  bool packed_query = false, packed_key = false, used_query = false, used_key = false;
  float scale = 1, softcap = 0;
  Window window;                    // causal folded in: right = 0
  std::optional<int32_t> diagonal;  // absent: keys - queries of each sequence
  bool sinks = false;
  TensorSpec query, key, value, out, lse;
  TensorSpec grad_out, grad_query, grad_key, grad_value;
  // 8-bit attention; `dtype` is that of query. Rows of blocks are 0 until the backend has chosen them.
  Quantization quantization;
  Rope rope;
  TensorSpec quantized_query, quantized_key, quantized_value;
  TensorSpec query_scale, key_scale, value_scale, value_mean;
  TensorSpec rope_cos, rope_sin;
  Options options;
  /// Not of the problem: pins the Hopper forward to a kernel that may lie outside the library, for measurements. Null:
  /// the library chooses.
  const sm90::forward::Variant* variant = nullptr;

  /// Query heads of one key head; resolve() has seen to it that they divide.
  int64_t group() const { return key_heads > 0 ? query_heads / key_heads : 1; }
  /// Whether the quantiser finds the mean that it takes out of value.
  bool searches_mean() const { return quantization.value_mean && !quantization.known_mean; }
  /// The scale for exponentials of base 2: finite, so that it times 0 is 0; and never 0, which makes all weights equal:
  /// the smallest number does so too, and keeps masked scores (-inf) apart.
  float scale_log2() const {
    constexpr float log2_e = 1.44269504088896340736F, most = std::numeric_limits<float>::max();
    return scale == 0 ? 0x1p-126F : std::clamp(scale * log2_e, -most, most);
  }
};

Strides strides(const TensorSpec& spec);      // rank 4 dense or rank 3 packed
Strides lse_strides(const TensorSpec& spec);  // batch, row (query), head; rank 3 dense or rank 2 packed

/// Checks everything that doesn't depend on a backend and fills in defaults; the Status names the field at fault.
Result<Attention> resolve(Pass pass, const Problem& problem) noexcept;

}  // namespace tandem::internal
