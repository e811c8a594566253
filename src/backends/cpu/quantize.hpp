// The quantiser of the CPU backend.
#pragma once

#include "plan/executable.hpp"

namespace tandem::internal::cpu {

/// The Status names the feature that isn't served.
ExecutableResult prepare_quantize(const Attention& attention) noexcept;

}  // namespace tandem::internal::cpu
