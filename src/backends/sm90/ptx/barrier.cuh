// mbarriers, named barriers and fences (PTX ISA, "Parallel Synchronization and Communication Instructions").
#pragma once

#include "backends/sm90/ptx/qualifiers.cuh"
#include "backends/sm90/ptx/types.hpp"

namespace tandem::ptx {

/// The 32-bit shared-window address that instructions take.
TANDEM_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// The block's dynamic shared memory as one struct. Its sizeof is the launch size.
template <class T>
TANDEM_DEVICE T& dynamic_shared() {
  extern __shared__ __align__(1024) uint8_t tandem_dynamic_shared[];
  return *reinterpret_cast<T*>(tandem_dynamic_shared);
}

/// The same where every instruction counts: addresses and descriptors become constants. Dynamic shared memory begins
/// behind the system's 1 KiB in a kernel that has no other; one that has would stop here.
template <class T>
TANDEM_DEVICE T& fixed_shared() {
  constexpr uint32_t begin = 1024;
  if (shared_address(&dynamic_shared<T>()) != begin) __trap();
  return *reinterpret_cast<T*>(__cvta_shared_to_generic(begin));
}

TANDEM_DEVICE void init(Barrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals));
}

/// Makes initialised barriers visible to the other threads' waits and to TMA; follow it with sync_block().
TANDEM_DEVICE void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}

TANDEM_DEVICE void arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

/// One arrival that also announces `bytes` of TMA loads; the phase completes when they have landed.
TANDEM_DEVICE void arrive_expect(Barrier& barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
               : "memory");
}

TANDEM_DEVICE bool try_wait(Barrier& barrier, int parity) {
  uint32_t done;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
               : "=r"(done)
               : "r"(shared_address(&barrier)), "r"(parity)
               : "memory");
  return done != 0;
}

/// Waits until the phase of that parity has completed. (A fresh barrier counts as having completed parity 1.)
TANDEM_DEVICE void wait(Barrier& barrier, int parity) {
  while (!try_wait(barrier, parity)) {
  }
}

/// Named barriers 0 to 15 of a block; `threads` counts those that sync and those that only arrive.
TANDEM_DEVICE void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
TANDEM_DEVICE void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
TANDEM_DEVICE void sync_block() { __syncthreads(); }

/// Orders this thread's ordinary writes to shared memory before later reads by TMA and wgmma.
TANDEM_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// The same for global memory: ordinary accesses, and what they order, before later bulk copies and reductions.
TANDEM_DEVICE void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/// Moves registers between warpgroups; executed by all threads of a warpgroup.
template <int Registers>
TANDEM_DEVICE void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
TANDEM_DEVICE void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Programmatic dependent launch: waits for the kernels before this one; lets the next one start early.
TANDEM_DEVICE void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
TANDEM_DEVICE void allow_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

/// Flags in global memory between blocks.
TANDEM_DEVICE int load_acquire(const int* flag) {
  int value;
  asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
TANDEM_DEVICE void add_release(int* flag, int value) {
  asm volatile("red.global.release.gpu.add.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

}  // namespace tandem::ptx
