// What api/ and measurements ask of plan/ beside the public plan() and available().
#pragma once

#include <span>

#include "plan/attention.hpp"
#include "tandem/tandem.hpp"

namespace tandem::internal {

/// The plan of a resolved problem.
Result<Plan> plan(const Attention& attention) noexcept;

/// The GPU kernels that this build holds; empty without the sm90 backend.
std::span<const KernelInfo> compiled_kernels() noexcept;

}  // namespace tandem::internal
