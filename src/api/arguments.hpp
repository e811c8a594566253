// Checks of run-time arguments against the plan, before a backend sees them.
#pragma once

#include "plan/executable.hpp"

namespace tandem::internal {

/// Every view that the plan takes is there and as planned, no other is, and the workspace will do.
Status check_arguments(const Attention& attention, const Arguments& arguments, const void* workspace, size_t given,
                       size_t needed) noexcept;

/// Cumulative lengths begin at 0, don't decrease, stay within maxima and rows; used lengths stay within their
/// sequences. Lengths in CPU memory are always checked; those on a GPU, whose kernels clamp them, only if
/// Options::check_lengths asks for it, since that waits for the stream.
Status check_length_values(const Executable& executable, const Arguments& arguments, void* stream);

}  // namespace tandem::internal
