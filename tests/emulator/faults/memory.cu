// Small kernels with one fault each: memory, barriers, collectives, flags. The name of each says what is wrong.
#include "backends/sm90/ptx/ptx.hpp"
#include "params.hpp"

namespace tandem::faults {

using conformance::Params;

struct Shared {
  alignas(128) int32_t value[256];
  ptx::Barrier barrier[2];
  static constexpr ptx::Part parts[] = {{"value", 0, 4}, {"barrier", 1024, 8}};
};

TANDEM_DEVICE Shared& memory() { return ptx::dynamic_shared<Shared>(); }
TANDEM_DEVICE int thread() { return ptx::thread_index(); }
TANDEM_DEVICE int32_t* output(const Params& p) { return reinterpret_cast<int32_t*>(p.output); }
TANDEM_DEVICE void start_barriers() {
  if (thread() == 0) {
    ptx::init(memory().barrier[0], 1);
    ptx::init(memory().barrier[1], 2);
    ptx::fence_barrier_init();
  }
  ptx::sync_block();
}

// ---- shared memory
TANDEM_DEVICE void shared_race(const Params& p) {
  memory().value[thread()] = 1;
  output(p)[thread()] = memory().value[63 - thread()];
}
TANDEM_DEVICE void shared_uninitialised(const Params& p) { output(p)[thread()] = memory().value[thread()]; }
TANDEM_DEVICE void shared_beyond(const Params&) {
  int32_t* values = memory().value;
  values[400 + thread()] = 1;
}
TANDEM_DEVICE void shuffle_orders_nothing(const Params& p) {
  memory().value[thread()] = 1;
  ptx::shuffle_xor(1, 1);
  output(p)[thread()] = memory().value[thread() ^ 1];
}

// ---- global memory
TANDEM_DEVICE void global_read_beyond(const Params& p) {
  output(p)[thread()] = reinterpret_cast<const int32_t*>(p.input)[1 << 20];
}
TANDEM_DEVICE void global_write_beyond(const Params& p) { output(p)[1024 + thread()] = 1; }
TANDEM_DEVICE void global_write_before(const Params& p) { output(p)[-1 - thread()] = 1; }
TANDEM_DEVICE void write_to_input(const Params& p) { const_cast<uint8_t*>(p.input)[thread()] = 1; }
TANDEM_DEVICE void blocks_race(const Params& p) { output(p)[thread()] = ptx::block_index(); }
TANDEM_DEVICE void global_race(const Params& p) {
  output(p)[thread()] = 1;
  output(p)[128 + thread()] = output(p)[63 - thread()];
}
TANDEM_DEVICE void global_uninitialised(const Params& p) { output(p)[thread()] = output(p)[64 + thread()]; }
TANDEM_DEVICE void global_uninitialised_load(const Params& p) {
  start_barriers();
  if (thread() != 0) return;
  ptx::arrive_expect(memory().barrier[0], 256);
  ptx::bulk_load(memory().value, p.output, 256, memory().barrier[0]);
  ptx::wait(memory().barrier[0], 0);
}
TANDEM_DEVICE void global_rows(const Params& p) { output(p)[thread() / 16 * 32 + thread() % 16] = 1; }

// ---- flags between blocks
TANDEM_DEVICE void await_flag(const Params& p) {
  if (thread() == 0) {
    while (ptx::load_acquire(p.flags) != 1) {
    }
  }
  ptx::sync_block();
  output(p)[128 + thread()] = output(p)[thread()];
}
TANDEM_DEVICE void flag_raised_early(const Params& p) {
  if (ptx::block_index() == 1) return await_flag(p);
  if (thread() == 0) ptx::add_release(p.flags, 1);
  output(p)[thread()] = 1;
}
TANDEM_DEVICE void flag_without_barrier(const Params& p) {
  if (ptx::block_index() == 1) return await_flag(p);
  output(p)[thread()] = 1;
  if (thread() == 0) ptx::add_release(p.flags, 1);
}
TANDEM_DEVICE void flag_never_raised(const Params& p) {
  if (ptx::block_index() == 1) await_flag(p);
}
/// A store that others must see needs the wait for its writes, not only for its reads.
TANDEM_DEVICE void flag_after_bulk_read(const Params& p) {
  if (ptx::block_index() == 1) return await_flag(p);
  memory().value[thread()] = thread();
  ptx::fence_proxy_async();
  ptx::sync_block();
  if (thread() == 0) {
    ptx::bulk_store(p.output, memory().value, 256);
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();
    ptx::add_release(p.flags, 1);
  }
}
template <bool shared_only>
TANDEM_DEVICE void load_own_global(const Params& p) {
  start_barriers();
  if (thread() != 0) return;
  for (int i = 0; i < 64; ++i) output(p)[i] = i;
  if (shared_only) ptx::fence_proxy_async();
  ptx::arrive_expect(memory().barrier[0], 256);
  ptx::bulk_load(memory().value, p.output, 256, memory().barrier[0]);
  ptx::wait(memory().barrier[0], 0);
}
TANDEM_DEVICE void global_proxy_fence_missing(const Params& p) { load_own_global<false>(p); }
TANDEM_DEVICE void global_proxy_fence_for_shared(const Params& p) { load_own_global<true>(p); }

// ---- mbarriers
TANDEM_DEVICE void mbarrier_uninitialised(const Params&) { ptx::arrive(memory().barrier[0]); }
TANDEM_DEVICE void mbarrier_overwritten(const Params&) {
  start_barriers();
  if (thread() != 0) return;
  memory().barrier[0].state = 0;
  ptx::arrive(memory().barrier[0]);
}
TANDEM_DEVICE void mbarrier_initialised_twice(const Params&) {
  start_barriers();
  if (thread() == 0) ptx::init(memory().barrier[0], 1);
}
TANDEM_DEVICE void mbarrier_arrivals(const Params& p) {
  start_barriers();
  if (thread() == 0) ptx::arrive_expect(memory().barrier[0], 256);  // the phase waits for bytes
  ptx::sync_block();
  if (thread() == 32) ptx::arrive(memory().barrier[0]);
  ptx::sync_block();
  if (thread() == 0) ptx::bulk_load(memory().value, p.input, 256, memory().barrier[0]);
  ptx::wait(memory().barrier[0], 0);
}
TANDEM_DEVICE void mbarrier_parity(const Params&) {
  start_barriers();
  ptx::wait(memory().barrier[0], 2);
}
TANDEM_DEVICE void mbarrier_never_completes(const Params&) {
  start_barriers();
  if (thread() == 0) ptx::arrive(memory().barrier[1]);
  ptx::wait(memory().barrier[1], 0);
}
TANDEM_DEVICE void mbarrier_polled_for_ever(const Params&) {
  start_barriers();
  while (!ptx::try_wait(memory().barrier[1], 0)) {
  }
}

// ---- named barriers and collectives
TANDEM_DEVICE void named_barrier_id(const Params&) { ptx::barrier_sync(16, 64); }
TANDEM_DEVICE void named_barrier_count(const Params&) { ptx::barrier_sync(1, 40); }
TANDEM_DEVICE void named_barrier_clash(const Params&) { ptx::barrier_sync(1, thread() < 32 ? 64 : 96); }
TANDEM_DEVICE void named_barrier_alone(const Params&) {
  if (thread() < 32) ptx::barrier_sync(1, 64);
}
TANDEM_DEVICE void divergent_lanes(const Params&) {
  if (thread() % 2)
    ptx::sync_warp();
  else
    ptx::ballot(true);
}
TANDEM_DEVICE void lanes_missing(const Params&) {
  if (thread() % 2) ptx::sync_warp();
}
TANDEM_DEVICE void not_uniform(const Params&) { ptx::uniform(thread()); }

// ---- arithmetic that nvcc takes for impossible
TANDEM_DEVICE void arithmetic_overflow(const Params& p) { output(p)[thread()] = 0x7fffffff - p.argument[0] + 1; }
TANDEM_DEVICE void arithmetic_division(const Params& p) { output(p)[thread()] = 5 / p.argument[0]; }
TANDEM_DEVICE void arithmetic_index(const Params& p) { memory().value[256 + p.argument[0]] = 1; }

// ---- registers
TANDEM_DEVICE void registers_odd(const Params&) { ptx::registers_down<42>(); }
TANDEM_DEVICE void registers_wrong_way(const Params&) { ptx::registers_up<24>(); }
TANDEM_DEVICE void registers_disagree(const Params&) {
  if (thread() < 32)
    ptx::registers_down<40>();
  else
    ptx::registers_down<48>();
}

}  // namespace tandem::faults

#define FAULT(name) TANDEM_KERNEL(name, tandem::conformance::Params, 128, tandem::faults::Shared, tandem::faults::name)
FAULT(shared_race)
FAULT(shared_uninitialised)
FAULT(shared_beyond)
FAULT(shuffle_orders_nothing)
FAULT(global_read_beyond)
FAULT(global_write_beyond)
FAULT(global_write_before)
FAULT(write_to_input)
FAULT(blocks_race)
FAULT(global_race)
FAULT(global_uninitialised)
FAULT(global_uninitialised_load)
FAULT(global_rows)
FAULT(flag_raised_early)
FAULT(flag_without_barrier)
FAULT(flag_never_raised)
FAULT(flag_after_bulk_read)
FAULT(global_proxy_fence_missing)
FAULT(global_proxy_fence_for_shared)
FAULT(mbarrier_uninitialised)
FAULT(mbarrier_overwritten)
FAULT(mbarrier_initialised_twice)
FAULT(mbarrier_arrivals)
FAULT(mbarrier_parity)
FAULT(mbarrier_never_completes)
FAULT(mbarrier_polled_for_ever)
FAULT(named_barrier_id)
FAULT(named_barrier_count)
FAULT(named_barrier_clash)
FAULT(named_barrier_alone)
FAULT(divergent_lanes)
FAULT(lanes_missing)
FAULT(not_uniform)
FAULT(arithmetic_overflow)
FAULT(arithmetic_division)
FAULT(arithmetic_index)
FAULT(registers_odd)
FAULT(registers_wrong_way)
FAULT(registers_disagree)
