// The kernel of dQ alone, beside one of dK and dV (Division::gradients): blocks work on tiles of queries. Its roles and
// barriers are the forward kernel's (forward/kernel.cuh), with
//   grad_out_*    one per consumer    TMA -> consumer, the store of dQ -> producer
// and a warp of its own that finds tiles.
#pragma once

#include "backends/sm90/backward/query_consumer.cuh"
#include "backends/sm90/backward/query_producer.cuh"
#include "backends/sm90/forward/barriers.cuh"

namespace tandem::internal::sm90::backward {

template <QueryConfig config>
TANDEM_DEVICE void run_query(const QueryParams& params) {
  static_assert(QueryShared<config>::as_planned(), "shared_bytes() must be sizeof(QueryShared), and within 227 KB");
  QueryShared<config>& shared = ptx::fixed_shared<QueryShared<config>>();
  const int warp = ptx::uniform(ptx::thread_index() >> 5);
  if (ptx::thread_index() == 0) {
    forward::init_barriers<config>(shared, 1, 1, 1);
    for (int w = 0; w < config.consumers; ++w) {
      ptx::init(shared.grad_out_full[w], 1);
      ptx::init(shared.grad_out_empty[w], 1);
    }
    ptx::fence_barrier_init();
  }
  ptx::sync_block();
  ptx::wait_for_previous_kernel();
  // That of dK and dV may take the room of our blocks as these end: it needs what this one has waited for, no more.
  if (ptx::thread_index() == 0) ptx::allow_next_kernel();
  if (warp < 4) {
    ptx::registers_down<QueryConfig::registers_producer>();
    if (warp == 0)
      QueryProducer<config>(shared, params).run();
    else if (warp == 1)
      announce_query_tiles(shared, params);
  } else {
    ptx::registers_up<QueryConfig::registers_consumer>();
    QueryConsumer<config>(shared, params, warp / 4 - 1).run();
  }
}

}  // namespace tandem::internal::sm90::backward

/// Defines the kernel of one variant.
#define TANDEM_BACKWARD_QUERY_KERNEL(name, config)                                     \
  TANDEM_KERNEL(name, tandem::internal::sm90::backward::QueryParams, (config).threads, \
                tandem::internal::sm90::backward::QueryShared<(config)>,               \
                tandem::internal::sm90::backward::run_query<(config)>)
