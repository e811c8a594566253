// The 8-bit forward kernel: the 16-bit one's roles and barriers (forward/kernel.cuh), with scales beside them, and a
// warp of its own that finds and describes tiles.
#pragma once

#include "backends/sm90/forward/barriers.cuh"
#include "backends/sm90/forward_fp8/consumer.cuh"
#include "backends/sm90/forward_fp8/producer.cuh"
#include "backends/sm90/forward_fp8/shared.cuh"
#include "backends/sm90/forward_fp8/transposer.cuh"

namespace tandem::internal::sm90::forward_fp8 {

template <Config config>
TANDEM_DEVICE void run(const Params& params) {
  static_assert(Shared<config>::as_planned(), "Config::shared_bytes() must be sizeof(Shared), and within 227 KB");
  Shared<config>& shared = ptx::fixed_shared<Shared<config>>();
  const int warpgroup = ptx::uniform(ptx::thread_index() >> 7);
  if (ptx::thread_index() == 0) {
    constexpr int transposers = config.transposes() ? Config::transposers : 0;
    forward::init_barriers<config>(shared, 2, config.transposes() ? transposers : 1, 1 + transposers);
    if constexpr (config.transposes()) {
      for (int b = 0; b < config.raw_buffers(); ++b) {
        ptx::init(shared.raw.full[b], 1);
        ptx::init(shared.raw.empty[b], transposers);
      }
    }
    for (ptx::Barrier& full : shared.scales_full) ptx::init(full, 1);
    ptx::init(shared.patch, 1);
    ptx::fence_barrier_init();
  }
  ptx::sync_block();
  if (warpgroup == 0) {
    ptx::registers_down<config.registers_producer()>();
    const int warp = ptx::uniform(ptx::thread_index() >> 5);
    if (warp == 0)
      Producer<config>(shared, params).run();
    else if (warp == 1)
      Scheduler<config>(shared, params).run();
    else if constexpr (config.transposes())
      Transposer<config>(shared, warp - 2).run();
  } else {
    ptx::registers_up<config.registers_consumer()>();
    Consumer<config>(shared, params, warpgroup - 1).run();
  }
}

}  // namespace tandem::internal::sm90::forward_fp8

/// Defines the kernel of one variant.
#define TANDEM_FORWARD_FP8_KERNEL(name, config)                                        \
  TANDEM_KERNEL(name, tandem::internal::sm90::forward_fp8::Params, (config).threads(), \
                tandem::internal::sm90::forward_fp8::Shared<(config)>,                 \
                tandem::internal::sm90::forward_fp8::run<(config)>)
