// The backward kernels' named barriers (0 is sync_block's).
#pragma once

#include "backends/sm90/backward/config.hpp"

namespace tandem::internal::sm90::backward {

/// Consumer w may use the exponential unit: one warpgroup exponentiates while the other has the tensor cores.
constexpr int turn_barrier(int consumer) { return 1 + consumer; }
constexpr int turn_threads = 128 * Config::consumers;

/// Division::gradients, which has no turns: the warps of a consumer among themselves. (The kernel of dQ has the forward
/// kernel's, forward/named_barriers.hpp.)
constexpr int gradient_barrier(bool of_value) { return of_value ? 1 : 2; }

}  // namespace tandem::internal::sm90::backward
