// See spec.hpp.
#include "plan/spec.hpp"

#include <algorithm>

#include "common/status.hpp"

namespace tandem::internal {
namespace {

/// False where the bytes up to the last element, or the number of elements, don't fit 63 bits.
bool addressable(const TensorSpec& spec) {
  int64_t count = 1, extent = 1, bytes = 0, step = 0;
  for (int i = 0; i < spec.rank; ++i) {
    if (spec.size[i] == 0) continue;  // an empty tensor's other sizes still have to multiply
    if (__builtin_mul_overflow(count, spec.size[i], &count)) return false;
    if (__builtin_mul_overflow(spec.size[i] - 1, spec.stride[i], &step)) return false;
    if (__builtin_add_overflow(extent, step, &extent)) return false;
  }
  return !__builtin_mul_overflow(std::max(count, extent), int64_t{element_bytes(spec.dtype)}, &bytes);
}

/// Strides of an empty tensor lead nowhere: frameworks set them as they like.
Status check_sizes(const char* name, const TensorSpec& spec) {
  const bool empty = elements(spec) == 0;
  for (int i = 0; i < spec.rank; ++i) {
    if (spec.size[i] < 0) {
      return error(Code::invalid_argument, name, "size[%d] of %s is %lld; sizes are 0 or more", i, name,
                   static_cast<long long>(spec.size[i]));
    }
    if (spec.stride[i] < 0 && !empty) {
      return error(Code::invalid_argument, name, "stride[%d] of %s is %lld; negative strides aren't served", i, name,
                   static_cast<long long>(spec.stride[i]));
    }
  }
  return {};
}

}  // namespace

int element_bytes(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::fp32:
    case Dtype::int32:
      return 4;
    case Dtype::fp16:
    case Dtype::bf16:
      return 2;
    case Dtype::e4m3:
    case Dtype::int8:
      return 1;
    case Dtype::int64:
      return 8;
    case Dtype::none:
      break;
  }
  return 0;
}

int64_t elements(const TensorSpec& spec) noexcept {
  int64_t count = 1;
  for (int i = 0; i < spec.rank; ++i) {
    if (spec.size[i] == 0) return 0;
    count *= spec.size[i];
  }
  return count;
}

ShapeText shape_text(const TensorSpec& spec) noexcept {
  ShapeText shape;
  int used = std::snprintf(shape.text, sizeof shape.text, "(");
  for (int i = 0; i < std::min(spec.rank, TensorSpec::max_rank); ++i) {
    used += std::snprintf(shape.text + used, sizeof shape.text - used, "%s%lld", i == 0 ? "" : ", ",
                          static_cast<long long>(spec.size[i]));
  }
  std::snprintf(shape.text + used, sizeof shape.text - used, ")");
  return shape;
}

const char* device_text(Device device) noexcept { return device.kind == DeviceKind::cuda ? "CUDA" : "the CPU"; }

Status check_spec(const char* name, const TensorSpec& spec, bool last_contiguous) noexcept {
  const int bytes = element_bytes(spec.dtype);
  if (bytes == 0) {
    return error(Code::invalid_argument, name, "%s has dtype %d, which isn't one of tandem::Dtype", name,
                 static_cast<int>(spec.dtype));
  }
  if ((spec.device.kind != DeviceKind::cpu && spec.device.kind != DeviceKind::cuda) || spec.device.index < 0) {
    return error(Code::invalid_argument, name,
                 "%s has device kind %d, index %d; kinds are cpu and cuda, indices from 0", name,
                 static_cast<int>(spec.device.kind), spec.device.index);
  }
  if (spec.rank < 1 || spec.rank > TensorSpec::max_rank) {
    return error(Code::invalid_argument, name, "%s has rank %d; ranks are 1 to %d", name, spec.rank,
                 TensorSpec::max_rank);
  }
  if (Status status = check_sizes(name, spec); !status.ok()) return status;
  const int last = spec.rank - 1;
  if (last_contiguous && elements(spec) > 0 && spec.size[last] > 1 && spec.stride[last] != 1) {
    return error(Code::invalid_argument, name, "the last stride of %s is %lld; the last dimension must have stride 1",
                 name, static_cast<long long>(spec.stride[last]));
  }
  if (!addressable(spec)) {
    return error(Code::invalid_argument, name, "%s with sizes %s and its strides overflows 64-bit addresses", name,
                 shape_text(spec).text);
  }
  if (spec.alignment < bytes || (spec.alignment & (spec.alignment - 1)) != 0) {
    return error(Code::invalid_argument, name, "alignment of %s is %d; it must be a power of two of at least %d bytes",
                 name, spec.alignment, bytes);
  }
  return {};
}

Status check_distinct(const char* name, const TensorSpec& spec) noexcept {
  if (elements(spec) == 0) return {};
  // Each dimension must step over everything that those of smaller stride span. Layouts that interleave without sharing
  // an address, which no framework makes, are refused with the rest.
  for (int i = 0; i < spec.rank; ++i) {
    if (spec.size[i] <= 1) continue;
    int64_t span = 1;
    for (int j = 0; j < spec.rank; ++j) {
      const bool inside = spec.stride[j] < spec.stride[i] || (spec.stride[j] == spec.stride[i] && j > i);
      if (inside) span += (spec.size[j] - 1) * spec.stride[j];
    }
    if (spec.stride[i] < span) {
      return error(Code::invalid_argument, name,
                   "elements of %s overlap: stride[%d] is %lld, but the dimensions inside it span %lld elements", name,
                   i, static_cast<long long>(spec.stride[i]), static_cast<long long>(span));
    }
  }
  return {};
}

TensorSpec normalized(const TensorSpec& spec) noexcept {
  TensorSpec result = spec;
  int64_t dense = 1;
  for (int i = spec.rank - 1; i >= 0; --i) {
    if (spec.size[i] <= 1) result.stride[i] = dense;
    if (__builtin_mul_overflow(result.stride[i], std::max<int64_t>(spec.size[i], 1), &dense)) dense = 0;
  }
  for (int i = spec.rank; i < TensorSpec::max_rank; ++i) result.size[i] = result.stride[i] = 0;
  return result;
}

bool same_strides(const TensorSpec& a, const TensorSpec& b) noexcept {
  if (elements(a) == 0) return true;
  for (int i = 0; i < a.rank; ++i) {
    if (a.size[i] > 1 && a.stride[i] != b.stride[i]) return false;
  }
  return true;
}

TensorSpec row_major(Dtype dtype, Device device, const int64_t* size, int rank) noexcept {
  TensorSpec spec;
  spec.dtype = dtype;
  spec.device = device;
  spec.rank = rank;
  int64_t stride = 1;
  for (int i = std::min(rank, TensorSpec::max_rank) - 1; i >= 0; --i) {
    spec.size[i] = size[i];
    spec.stride[i] = stride;
    // A product past 64 bits is left to check_spec, which refuses such sizes; it must only not be undefined here.
    if (__builtin_mul_overflow(stride, std::max<int64_t>(size[i], 1), &stride)) stride = INT64_MAX;
  }
  return spec;
}

}  // namespace tandem::internal
