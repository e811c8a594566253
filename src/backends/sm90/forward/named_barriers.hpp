// The forward kernel's named barriers (0 is sync_block's).
#pragma once

#include "backends/sm90/forward/params.hpp"

namespace tandem::internal::sm90::forward {

/// Consumer w may use the tensor cores: the ping-pong order (FA-3 section 3.1).
constexpr int turn_barrier(int consumer) { return 1 + consumer; }
/// The warps of consumer w among themselves.
constexpr int consumer_barrier(int consumers, int consumer) { return 1 + consumers + consumer; }
constexpr int named_barriers(int consumers) { return 1 + 2 * consumers; }

static_assert(named_barriers(max_consumers) <= 16, "the hardware has 16 named barriers a block");

}  // namespace tandem::internal::sm90::forward
