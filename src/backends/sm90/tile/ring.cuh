// A ring of shared-memory stages between the producer and the consumers (FA-3 Algorithm 1, "circular SMEM buffer"):
// each stage has a full and an empty mbarrier; each side walks with its own position.
#pragma once

#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90 {

/// Stage and parity of one side's next use. A consumer waits for a full stage with `parity`, the producer for an empty
/// one with the opposite, so that its first waits pass (a fresh barrier counts as having completed parity 1).
template <int stages>
struct RingPosition {
  int stage = 0;
  int parity = 0;

  TANDEM_DEVICE void next() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// Stages of the ring of values, of which a kernel may have fewer than of keys.
template <auto config>
constexpr int value_stages() {
  if constexpr (requires { config.value_stages; })
    return config.value_stages;
  else
    return config.stages;
}

}  // namespace tandem::internal::sm90
