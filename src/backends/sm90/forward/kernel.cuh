// The forward kernel: warp-specialised, persistent (FA-3 Algorithm 1). One producer warpgroup gives its registers to
// two or three consumer warpgroups; mbarriers in shared memory carry tiles, stages and queries between them:
//   tile_full / tile_empty    which tile is next       producer -> consumers, and back
//   query_full / query_empty  one per consumer         TMA -> consumer, consumer's warps (or its store) -> producer
//   key_*, value_*            one per stage            TMA -> all consumers, their warps -> producer
#pragma once

#include "backends/sm90/forward/consumer.cuh"
#include "backends/sm90/forward/consumer_three_stage.cuh"
#include "backends/sm90/forward/producer.cuh"
#include "backends/sm90/forward/shared.cuh"

namespace tandem::internal::sm90::forward {

template <Config config>
TANDEM_DEVICE void init_barriers(Shared<config>& shared) {
  constexpr int warps = 4 * config.consumers;
  for (int w = 0; w < config.consumers; ++w) {
    ptx::init(shared.query_full[w], 1);
    ptx::init(shared.query_empty[w], 4);
  }
  for (int s = 0; s < config.stages; ++s) {
    ptx::init(shared.key_full[s], 1);
    ptx::init(shared.key_empty[s], warps);
    ptx::init(shared.value_full[s], 1);
    ptx::init(shared.value_empty[s], warps);
  }
  for (int s = 0; s < 2; ++s) {
    ptx::init(shared.tile_full[s], 1);
    ptx::init(shared.tile_empty[s], warps);
  }
  ptx::fence_barrier_init();
}

template <Config config>
TANDEM_DEVICE void run(const Params& params) {
  static_assert(Shared<config>::as_planned(), "Config::shared_bytes() must be sizeof(Shared), and within 227 KB");
  Shared<config>& shared = ptx::dynamic_shared<Shared<config>>();
  const int warpgroup = ptx::uniform(ptx::thread_index() >> 7);
  if (ptx::thread_index() == 0) init_barriers(shared);
  ptx::sync_block();
  if constexpr (!config.warp_specialised) {
    Consumer<config>(shared, params, warpgroup).run();
  } else if (warpgroup == 0) {
    ptx::registers_down<config.registers_producer()>();
    if (ptx::thread_index() < 32) Producer<config>(shared, params).run();
  } else {
    ptx::registers_up<config.registers_consumer()>();
    Consumer<config>(shared, params, warpgroup - 1).run();
  }
}

}  // namespace tandem::internal::sm90::forward

/// Defines the kernel of one variant.
#define TANDEM_FORWARD_KERNEL(name, config)                                        \
  TANDEM_KERNEL(name, tandem::internal::sm90::forward::Params, (config).threads(), \
                tandem::internal::sm90::forward::Shared<(config)>, tandem::internal::sm90::forward::run<(config)>)
