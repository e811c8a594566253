// The 8-bit forward kernel: the 16-bit one's roles and barriers (forward/kernel.cuh), with scales beside them.
#pragma once

#include "backends/sm90/forward/barriers.cuh"
#include "backends/sm90/forward_fp8/consumer.cuh"
#include "backends/sm90/forward_fp8/producer.cuh"
#include "backends/sm90/forward_fp8/shared.cuh"

namespace tandem::internal::sm90::forward_fp8 {

template <Config config>
TANDEM_DEVICE void run(const Params& params) {
  static_assert(Shared<config>::as_planned(), "Config::shared_bytes() must be sizeof(Shared), and within 227 KB");
  Shared<config>& shared = ptx::dynamic_shared<Shared<config>>();
  const int warpgroup = ptx::uniform(ptx::thread_index() >> 7);
  if (ptx::thread_index() == 0) {
    forward::init_barriers<config>(shared);
    ptx::init(shared.patch, 1);
    ptx::fence_barrier_init();
  }
  ptx::sync_block();
  if (warpgroup == 0) {
    ptx::registers_down<config.registers_producer()>();
    if (ptx::thread_index() < 32) Producer<config>(shared, params).run();
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
