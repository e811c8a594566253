// Tensors of any strides in host memory, surrounded by guard words: what commands and sweeps hand to a plan.
#pragma once

#include <vector>

#include "tools/io/array.hpp"

namespace tandem::tools {

/// How the elements of a tensor lie in memory.
enum class Layout {
  row_major,   // (batch, seqlen, heads, dim) as written
  head_major,  // stored as (batch, heads, seqlen, dim)
  padded,      // each row of heads is followed by others' data, as in a slice of a fused projection
};

struct Tensor {
  TensorSpec spec;
  Bytes bytes;       // all of it: guard, elements with whatever lies between them, guard
  size_t first = 0;  // offset of element 0 in bytes

  bool present() const { return spec.present(); }
  /// The view of a copy of `bytes` that lies at `base`.
  TensorView view(std::byte* base) const { return {spec, present() ? base + first : nullptr}; }
};

constexpr size_t guard_bytes = 512;  // keeps element 0 aligned as the allocation is
constexpr std::byte poison{0xff};    // NaN in every floating-point type

/// A tensor whose memory is all poison. `shape` of rank 3 or more has (..., seqlen, heads, dim) as its last axes.
Tensor poisoned(Dtype dtype, const std::vector<int64_t>& shape, Layout layout = Layout::row_major);

/// A tensor with the elements of `array`; poison round and between them.
Tensor tensor_of(const Array& array, Layout layout = Layout::row_major);

/// The elements in row-major order.
Array array_of(const Tensor& tensor);

/// Whether every byte outside the tensor's elements is still poison.
bool guards_intact(const Tensor& tensor);

/// The spec with its device replaced.
TensorSpec on(TensorSpec spec, Device device);

std::vector<int64_t> shape_of(const TensorSpec& spec);

}  // namespace tandem::tools
