// What can be said of a tensor by its spec alone: is it well formed, do elements overlap, how is it written in
// messages.
#pragma once

#include "tandem/tandem.hpp"

namespace tandem::internal {

/// Rows of a tensor and of a sequence stay below this, so that row numbers and mask sums fit 32 bits.
constexpr int64_t row_limit = int64_t{1} << 30;

/// 0 for Dtype::none and for values outside the enumeration.
int element_bytes(Dtype dtype) noexcept;

/// The number of elements of a spec that check_spec accepts.
int64_t elements(const TensorSpec& spec) noexcept;

/// Sizes as text, "(2, 128, 8, 64)", for messages.
struct ShapeText {
  char text[128];
};
ShapeText shape_text(const TensorSpec& spec) noexcept;
const char* device_text(Device device) noexcept;

/// Well formed: known dtype and device, a rank, sizes and strides that no 64-bit product overflows, an alignment. The
/// last stride must be 1 if `last_contiguous` is set and the dimension holds more than one element.
Status check_spec(const char* name, const TensorSpec& spec, bool last_contiguous) noexcept;

/// For tensors that are written: no two elements share an address.
Status check_distinct(const char* name, const TensorSpec& spec) noexcept;

/// Gives dimensions of at most one element the stride of a row-major tensor, since theirs is never used.
TensorSpec normalized(const TensorSpec& spec) noexcept;

/// Whether the strides that matter agree; those of dimensions of at most one element and of empty tensors don't.
bool same_strides(const TensorSpec& a, const TensorSpec& b) noexcept;

/// Row-major, at run-time rank.
TensorSpec row_major(Dtype dtype, Device device, const int64_t* size, int rank) noexcept;

}  // namespace tandem::internal
