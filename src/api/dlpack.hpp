// From DLPack's tensors to Tandem's.
#pragma once

#include <dlpack/dlpack.h>

#include "tandem/tandem.hpp"

namespace tandem::internal {

/// The spec of `tensor`, absent where it is null; the Status names `name`.
Status from_dlpack(const char* name, const DLTensor* tensor, TensorSpec& spec) noexcept;

/// The view of `tensor`, byte_offset added.
Status from_dlpack(const char* name, const DLTensor* tensor, TensorView& view) noexcept;

}  // namespace tandem::internal
