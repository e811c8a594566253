// What api/ asks of plan/ beside the public plan() and available().
#pragma once

#include <span>

#include "tandem/tandem.hpp"

namespace tandem::internal {

/// The GPU kernels that this build holds; empty without the sm90 backend.
std::span<const KernelInfo> compiled_kernels() noexcept;

}  // namespace tandem::internal
