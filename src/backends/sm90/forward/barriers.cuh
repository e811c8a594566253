// The mbarriers that carry tiles, stages and queries between the producer and the consumers, of the 8-bit forward and
// of the backward's kernel of dQ.
#pragma once

#include "backends/sm90/ptx/ptx.hpp"
#include "backends/sm90/tile/ring.cuh"

namespace tandem::internal::sm90::forward {

/// `key_writers`, `value_writers`: that arrive when a stage of keys or values is full; `tile_readers`: besides the
/// consumers' warps.
template <auto config, class SharedMemory>
TANDEM_DEVICE void init_barriers(SharedMemory& shared, int key_writers, int value_writers, int tile_readers) {
  constexpr int warps = 4 * config.consumers;
  for (int w = 0; w < config.consumers; ++w) {
    for (int b = 0; b < config.query_buffers; ++b) {
      ptx::init(shared.query_full[w][b], 1);
      ptx::init(shared.query_empty[w][b], 4);
    }
  }
  for (int s = 0; s < config.stages; ++s) {
    ptx::init(shared.key_full[s], key_writers);
    ptx::init(shared.key_empty[s], warps);
  }
  for (int s = 0; s < value_stages<config>(); ++s) {
    ptx::init(shared.value_full[s], value_writers);
    ptx::init(shared.value_empty[s], warps);
  }
  for (int s = 0; s < config.tile_slots; ++s) {
    ptx::init(shared.tile_full[s], 1);
    ptx::init(shared.tile_empty[s], warps + tile_readers);
  }
}

}  // namespace tandem::internal::sm90::forward
