// Strided tensors with guard words.
#include "tools/tensor.hpp"

#include <algorithm>
#include <cstring>

namespace tandem::tools {
namespace {

/// Calls visit(byte offset of the element within tensor.bytes) for each element in row-major order.
template <class Visit>
void for_each_element(const Tensor& tensor, Visit visit) {
  const TensorSpec& spec = tensor.spec;
  const auto element = static_cast<int64_t>(size_of(spec.dtype));
  std::array<int64_t, TensorSpec::max_rank> index{};
  for (int axis = 0; axis < spec.rank; ++axis) {
    if (spec.size[axis] == 0) return;
  }
  while (true) {
    int64_t offset = 0;
    for (int axis = 0; axis < spec.rank; ++axis) offset += index[axis] * spec.stride[axis];
    visit(tensor.first + static_cast<size_t>(offset * element));
    int axis = spec.rank - 1;
    while (axis >= 0 && ++index[axis] == spec.size[axis]) index[axis--] = 0;
    if (axis < 0) return;
  }
}

/// The order of axes in memory, slowest first.
std::vector<int> memory_order(int rank, Layout layout) {
  std::vector<int> order(static_cast<size_t>(rank));
  for (int axis = 0; axis < rank; ++axis) order[static_cast<size_t>(axis)] = axis;
  if (layout == Layout::head_major && rank >= 3) std::swap(order[order.size() - 3], order[order.size() - 2]);
  return order;
}

}  // namespace

Tensor poisoned(Dtype dtype, const std::vector<int64_t>& shape, Layout layout) {
  Tensor tensor;
  TensorSpec& spec = tensor.spec;
  spec.dtype = dtype;
  spec.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), spec.size.begin());
  constexpr int64_t gap = 64;  // elements between rows of heads: a multiple of 16 bytes in every dtype
  const auto order = memory_order(spec.rank, layout);
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int axis = order[i];
    spec.stride[static_cast<size_t>(axis)] = stride;
    stride *= std::max<int64_t>(shape[static_cast<size_t>(axis)], 1);
    if (layout == Layout::padded && spec.rank >= 3 && axis == spec.rank - 2) stride += gap;
  }
  const size_t elements = count_elements(shape, "tensor") == 0 ? 0 : static_cast<size_t>(stride) * size_of(dtype);
  tensor.first = guard_bytes;
  tensor.bytes.assign(elements + 2 * guard_bytes, poison);
  return tensor;
}

Tensor tensor_of(const Array& array, Layout layout) {
  Tensor tensor = poisoned(array.dtype, array.shape, layout);
  const size_t element = size_of(array.dtype);
  const std::byte* from = array.bytes.data();
  for_each_element(tensor, [&](size_t offset) {
    std::memcpy(tensor.bytes.data() + offset, from, element);
    from += element;
  });
  return tensor;
}

Array array_of(const Tensor& tensor) {
  Array array{tensor.spec.dtype, shape_of(tensor.spec), {}};
  const size_t element = size_of(array.dtype);
  array.bytes.resize(static_cast<size_t>(count_elements(array)) * element);
  std::byte* to = array.bytes.data();
  for_each_element(tensor, [&](size_t offset) {
    std::memcpy(to, tensor.bytes.data() + offset, element);
    to += element;
  });
  return array;
}

bool guards_intact(const Tensor& tensor) {
  Bytes rest = tensor.bytes;
  const size_t element = size_of(tensor.spec.dtype);
  for_each_element(tensor,
                   [&](size_t offset) { std::fill_n(rest.begin() + static_cast<long>(offset), element, poison); });
  return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == poison; });
}

TensorSpec on(TensorSpec spec, Device device) {
  spec.device = device;
  return spec;
}

std::vector<int64_t> shape_of(const TensorSpec& spec) { return {spec.size.begin(), spec.size.begin() + spec.rank}; }

}  // namespace tandem::tools
