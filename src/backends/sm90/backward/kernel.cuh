// The backward kernel (FA-3 Algorithm 3): one block a tile of keys. A producer warpgroup whose threads load by TMA and
// add dQ to global memory, two consumer warpgroups; mbarriers in shared memory carry the data between them:
//   key_full, value_full     once                     TMA -> consumers
//   query_*, grad_out_*      one a stage              TMA -> consumers, their warps -> producer
//   grad_scores_*            one a buffer of dS       all warps of consumers -> all consumers, and back
//   grad_query_*             slot and warpgroup       a consumer's warps -> its writer, and back
// and with Division::columns, instead of the last two,
//   scores_*                 one a buffer of P, dS    the owner's warps -> all consumers, and back
#pragma once

#include "backends/sm90/backward/consumer.cuh"
#include "backends/sm90/backward/consumer_by_columns.cuh"
#include "backends/sm90/backward/producer.cuh"
#include "backends/sm90/backward/shared.cuh"

namespace tandem::internal::sm90::backward {

template <Config config>
TANDEM_DEVICE void init_barriers(Shared<config>& shared) {
  constexpr int warps = 4 * Config::consumers;
  ptx::init(shared.key_full, 1);
  ptx::init(shared.value_full, 1);
  for (int s = 0; s < Config::stages; ++s) {
    ptx::init(shared.query_full[s], 1);
    ptx::init(shared.query_empty[s], warps);
    ptx::init(shared.grad_out_full[s], 1);
    ptx::init(shared.grad_out_empty[s], warps);
    if constexpr (config.division == Division::keys) {
      ptx::init(shared.grad_scores_full[s], warps);
      ptx::init(shared.grad_scores_empty[s], warps);
    } else {
      ptx::init(shared.scores_full[s], 4);
      ptx::init(shared.scores_empty[s], warps);
    }
  }
  if constexpr (config.division == Division::keys) {
    for (int s = 0; s < config.slots; ++s) {
      for (int w = 0; w < Config::consumers; ++w) {
        ptx::init(shared.grad_query_full[s][w], 4);
        ptx::init(shared.grad_query_empty[s][w], 1);
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
  if (warp == 0) {
    const int32_t index = ptx::block_index();
    const Position at =
        params.scan ? scanned<config.tile_key()>(params, index) : position(params.order, index, 0, params.key_heads);
    if (first_lane) {
      describe<config.tile_query, config.tile_key()>(params, at, shared.tile);
      init_barriers(shared);
    }
  }
  ptx::sync_block();
  if (shared.tile.first_key < 0) return;  // the grid is an upper bound where lengths are the device's
  const Steps steps(params, shared.tile);
  if (warp < 4) {
    ptx::registers_down<Config::registers_producer>();
    if (!first_lane) return;
    if (warp == 0) Producer<config>(shared, params).load(steps);
    if constexpr (config.division == Division::keys)
      if (warp == 1 || warp == 2) Writer<config>(shared, params, warp - 1).run(steps);
  } else {
    ptx::registers_up<Config::registers_consumer>();
    if constexpr (config.division == Division::keys)
      Consumer<config>(shared, params, warp / 4 - 1).run(steps);
    else
      ColumnConsumer<config>(shared, params, warp / 4 - 1).run(steps);
  }
}

}  // namespace tandem::internal::sm90::backward

/// Defines the kernel of one variant.
#define TANDEM_BACKWARD_KERNEL(name, config)                                      \
  TANDEM_KERNEL(name, tandem::internal::sm90::backward::Params, (config).threads, \
                tandem::internal::sm90::backward::Shared<(config)>, tandem::internal::sm90::backward::run<(config)>)
