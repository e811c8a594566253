// The backward kernel (FA-3 Algorithm 3): blocks work on tiles of keys. A producer warpgroup whose warps find tiles,
// load by TMA and bring results to global memory, and two consumer warpgroups; mbarriers in shared memory carry the
// data:
//   tile_*                which tile is next           scheduler -> all roles, and back
//   tile_loaded           once a tile                  producer -> scheduler
//   key_*, value_*        once a tile                  TMA -> consumers, and back
//   query_*, grad_out_*   one a stage                  TMA -> consumers, their warps -> producer
//   grad_scores_*         one a buffer of dS           all warps of consumers -> all consumers, and back
//   slot_*                one a slot and warpgroup     a consumer's warps -> a writer, and back
// and with Division::gradients, instead of the last two,
//   weights_*             one a buffer of P            the warps of dV's consumer -> dK's, and back
#pragma once

#include "backends/sm90/backward/consumer.cuh"
#include "backends/sm90/backward/consumer_by_gradient.cuh"
#include "backends/sm90/backward/producer.cuh"
#include "backends/sm90/backward/shared.cuh"

namespace tandem::internal::sm90::backward {

template <Config config>
TANDEM_DEVICE void init_barriers(Shared<config>& shared) {
  constexpr int warps = 4 * Config::consumers;
  ptx::init(shared.key_full, 1);
  ptx::init(shared.value_full, 1);
  constexpr bool by_keys = config.division == Division::keys;
  ptx::init(shared.key_empty, by_keys ? warps : 1);
  ptx::init(shared.value_empty, by_keys ? warps : 1);
  ptx::init(shared.tile_loaded, 1);
  for (int s = 0; s < 2; ++s) {
    ptx::init(shared.tile_full[s], 1);
    ptx::init(shared.tile_empty[s], 1 + (by_keys ? Config::consumers : 0) + warps);
  }
  for (int s = 0; s < Config::stages; ++s) {
    ptx::init(shared.query_full[s], 1);
    ptx::init(shared.query_empty[s], warps);
    ptx::init(shared.grad_out_full[s], 1);
    ptx::init(shared.grad_out_empty[s], warps);
    if constexpr (config.division == Division::keys) {
      ptx::init(shared.grad_scores_full[s], warps);
      ptx::init(shared.grad_scores_empty[s], warps);
    } else {
      ptx::init(shared.weights_full[s], 4);
      ptx::init(shared.weights_empty[s], 4);
    }
  }
  if constexpr (config.division == Division::keys) {
    for (int s = 0; s < config.slots; ++s) {
      for (int w = 0; w < Config::consumers; ++w) {
        ptx::init(shared.slot_full[s][w], 4);
        ptx::init(shared.slot_empty[s][w], 1);
      }
    }
  }
  ptx::fence_barrier_init();
}

template <Config config>
TANDEM_DEVICE void run(const Params& params) {
  static_assert(Shared<config>::as_planned(), "Config::shared_bytes() must be sizeof(Shared), and within 227 KB");
  Shared<config>& shared = ptx::dynamic_shared<Shared<config>>();
  const int warp = ptx::uniform(ptx::thread_index() >> 5);
  const bool first_lane = (ptx::thread_index() & 31) == 0;
  constexpr bool by_keys = config.division == Division::keys;
  if (ptx::thread_index() == 0) {
    ptx::allow_next_kernel();  // its blocks may take the room of ours as these end
    init_barriers(shared);
  }
  ptx::sync_block();
  if (warp < 4) {
    ptx::registers_down<Config::registers_producer>();
    if constexpr (by_keys) ptx::wait_for_previous_kernel();
    if (warp == 3) {
      announce_tiles(shared, params);
      // The kernel of dQ, which runs before, needn't have ended for this one to begin, but before those behind it do.
      // What `prepare` wrote is complete: that kernel's blocks let this one begin behind their own wait. It is read
      // through L2 alone (TMA, bulk copies, atomics): an ordinary load of it would need a wait of its own.
      if constexpr (!by_keys) ptx::wait_for_previous_kernel();
    } else if (first_lane) {
      if (warp == 0)
        Producer<config>(shared, params).run();
      else if constexpr (by_keys)
        Writer<config>(shared, params, warp - 1).run();
    }
  } else {
    ptx::registers_up<Config::registers_consumer>();
    if constexpr (by_keys)
      Consumer<config>(shared, params, warp / 4 - 1).run();
    else if (warp < 8)
      GradientConsumer<config, Gradient::value>(shared, params).run();
    else
      GradientConsumer<config, Gradient::key>(shared, params).run();
  }
}

}  // namespace tandem::internal::sm90::backward

/// Defines the kernel of one variant.
#define TANDEM_BACKWARD_KERNEL(name, config)                                      \
  TANDEM_KERNEL(name, tandem::internal::sm90::backward::Params, (config).threads, \
                tandem::internal::sm90::backward::Shared<(config)>, tandem::internal::sm90::backward::run<(config)>)
