// The backends, as plan/ sees them. Each says whether it can run here and turns a resolved problem into an Executable;
// a refusal is a Status that names the feature that is missing and what would be accepted.
#pragma once

#include <span>

#include "plan/executable.hpp"

namespace tandem::internal::cpu {
Status available() noexcept;
ExecutableResult prepare(const Attention& attention) noexcept;
}  // namespace tandem::internal::cpu

namespace tandem::internal::sm90 {
Status available() noexcept;
ExecutableResult prepare(const Attention& attention) noexcept;
/// The kernels that this build holds, as recorded when they were compiled.
std::span<const KernelInfo> kernels() noexcept;
}  // namespace tandem::internal::sm90

namespace tandem::internal::emulator {
Status available() noexcept;
ExecutableResult prepare(const Attention& attention) noexcept;
}  // namespace tandem::internal::emulator
