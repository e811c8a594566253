// Conformance kernels: mbarriers, named barriers, register reallocation, flags between blocks.
#include "backends/sm90/ptx/ptx.hpp"
#include "params.hpp"

namespace tandem::conformance {

struct BarrierShared {
  ptx::Barrier barrier[4];
  int32_t value[256];
  static constexpr ptx::Part parts[] = {{"barrier", 0, 8}, {"value", 32, 4}};
};

/// One thread walks a barrier through its phases and writes down what try_wait says of each parity.
TANDEM_DEVICE void mbarrier_phases(const Params& p) {
  BarrierShared& shared = ptx::dynamic_shared<BarrierShared>();
  if (ptx::thread_index() != 0) return;
  int32_t* out = reinterpret_cast<int32_t*>(p.output);
  ptx::Barrier& barrier = shared.barrier[0];
  ptx::init(barrier, 2);
  ptx::fence_barrier_init();
  for (int i = 0; i < 9; ++i) {
    out[2 * i] = ptx::try_wait(barrier, 0);
    out[2 * i + 1] = ptx::try_wait(barrier, 1);
    ptx::arrive(barrier);
  }
}

/// Bytes are expected after some have arrived, and by two arrivals.
TANDEM_DEVICE void mbarrier_bytes(const Params& p) {
  BarrierShared& shared = ptx::dynamic_shared<BarrierShared>();
  const int thread = ptx::thread_index();
  ptx::Barrier& barrier = shared.barrier[1];
  if (thread == 0) {
    ptx::init(barrier, 2);
    ptx::fence_barrier_init();
  }
  ptx::sync_block();
  if (thread == 0) {
    ptx::bulk_load(shared.value, p.input, 512, barrier);
    ptx::arrive_expect(barrier, 256);
    ptx::bulk_load(shared.value + 128, p.input + 512, 512, barrier);
    ptx::arrive_expect(barrier, 768);
  }
  ptx::wait(barrier, 0);
  int32_t* out = reinterpret_cast<int32_t*>(p.output);
  for (int i = thread; i < 256; i += ptx::block_threads()) out[i] = shared.value[i];
}

/// Two warps hand values to and fro through named barriers, one side arriving only.
TANDEM_DEVICE void named_barriers(const Params& p) {
  BarrierShared& shared = ptx::dynamic_shared<BarrierShared>();
  const int thread = ptx::thread_index();
  int32_t* out = reinterpret_cast<int32_t*>(p.output);
  for (int round = 0; round < 4; ++round) {
    if (thread < 32) {
      if (round > 0) ptx::barrier_sync(2, 64);  // the other warp has read
      shared.value[thread] = thread * 10 + round;
      ptx::barrier_arrive(1, 64);
    } else {
      ptx::barrier_sync(1, 64);
      out[round * 32 + thread - 32] = shared.value[63 - thread];
      if (round < 3) ptx::barrier_arrive(2, 64);
    }
  }
}

/// Three warpgroups trade registers; the second and third can only grow when the first has shrunk.
TANDEM_DEVICE void trade_registers(const Params& p) {
  const int thread = ptx::thread_index();
  if (thread / 128 == 0) {
    ptx::registers_down<24>();
  } else {
    ptx::registers_up<240>();
  }
  reinterpret_cast<int32_t*>(p.output)[thread] = thread * 3;
}

struct NoShared {
  uint8_t none[16];
  static constexpr ptx::Part parts[] = {{"none", 0, 16}};
};

/// Block 1 waits for block 0's flag, then reads what it wrote.
TANDEM_DEVICE void flags_between_blocks(const Params& p) {
  int32_t* out = reinterpret_cast<int32_t*>(p.output);
  const int thread = ptx::thread_index();
  ptx::wait_for_previous_kernel();
  if (ptx::block_index() == 0) {
    out[thread] = thread * thread;
    ptx::sync_block();
    if (thread == 0) ptx::add_release(p.flags, 5);
  } else {
    if (thread == 0) {
      while (ptx::load_acquire(p.flags) != 5) {
      }
    }
    ptx::sync_block();
    out[64 + thread] = out[63 - thread] + 1;
  }
  ptx::allow_next_kernel();
}

TANDEM_DEVICE void atomics(const Params& p) {
  float* sum = reinterpret_cast<float*>(p.output);
  int32_t* count = reinterpret_cast<int32_t*>(p.output) + 1;
  ptx::atomic_add(sum, static_cast<float>(ptx::thread_index()));
  if (ptx::thread_index() % 32 == 0) ptx::take_ticket(count);
}

}  // namespace tandem::conformance

TANDEM_KERNEL(mbarrier_phases, tandem::conformance::Params, 32, tandem::conformance::BarrierShared,
              tandem::conformance::mbarrier_phases)
TANDEM_KERNEL(mbarrier_bytes, tandem::conformance::Params, 64, tandem::conformance::BarrierShared,
              tandem::conformance::mbarrier_bytes)
TANDEM_KERNEL(named_barriers, tandem::conformance::Params, 64, tandem::conformance::BarrierShared,
              tandem::conformance::named_barriers)
TANDEM_KERNEL(trade_registers, tandem::conformance::Params, 384, tandem::conformance::NoShared,
              tandem::conformance::trade_registers)
TANDEM_KERNEL(flags_between_blocks, tandem::conformance::Params, 64, tandem::conformance::NoShared,
              tandem::conformance::flags_between_blocks)
TANDEM_KERNEL(atomics, tandem::conformance::Params, 64, tandem::conformance::NoShared, tandem::conformance::atomics)
