// Checks of run-time arguments against the plan, before a backend sees them.
#pragma once

#include "plan/attention.hpp"

namespace tandem::internal {

/// Every view that the plan takes is there and as planned, no other is, and the workspace will do.
Status check_arguments(const Attention& attention, const Arguments& arguments, const void* workspace, size_t given,
                       size_t needed) noexcept;

/// For lengths in CPU memory: cumulative lengths begin at 0, don't decrease, stay within maxima and rows; used lengths
/// stay within their sequences. A backend on the GPU clamps instead (Options::check_lengths asks it to check).
Status check_length_values(const Attention& attention, const Arguments& arguments) noexcept;

}  // namespace tandem::internal
