// What blocks and kernels share: atomics and flags in global memory, and programmatic dependent launch.
#include <atomic>

#include "backends/emulator/scheduler.hpp"

namespace tandem::emulator {

namespace {

/// Checks an access by the current thread, and ends the launch where carrying it out could crash.
void check(const void* address, GlobalMemory::Kind kind, uintptr_t place) {
  if (!current->block.run().global.access(*current, reinterpret_cast<uintptr_t>(address), 4, kind, place))
    scheduler().stop();
}

}  // namespace

// PTX ISA, "griddepcontrol": kernels of a stream run one after the other here, so there is nothing to wait for.
void wait_for_previous_kernel() {}
void allow_next_kernel() {}

/// PTX ISA, "ld" with .acquire: what the releasing thread came after is ordered before what follows here ("Release and
/// Acquire Patterns", "Causality Order").
int load_acquire(const int* flag) {
  const uintptr_t place = TANDEM_PLACE;
  check(flag, GlobalMemory::Kind::atomic, place);
  int value = __atomic_load_n(flag, __ATOMIC_ACQUIRE);
  if (current->polled == flag && current->polled_value == value) {
    // A poll: nothing changed since the last look. Sleep until it does.
    scheduler().suspend(Waiting::flag, "flag", 0, value, place);
    value = __atomic_load_n(flag, __ATOMIC_ACQUIRE);
  }
  current->polled = flag;
  current->polled_value = value;
  current->block.run().global.acquire(*current, flag);
  return value;
}

/// PTX ISA, "red" with .release; the block's barrier before it makes its release cumulative over the block ("Causality
/// Order").
void add_release(int* flag, int value) {
  check(flag, GlobalMemory::Kind::atomic, TANDEM_PLACE);
  current->block.run().global.release(*current, flag);
  __atomic_fetch_add(flag, value, __ATOMIC_RELEASE);
  scheduler().flag_changed();
  scheduler().maybe_preempt();
}

/// PTX ISA, "atom": relaxed, so it orders nothing else.
int take_ticket(int* counter) {
  const uintptr_t place = TANDEM_PLACE;
  check(counter, GlobalMemory::Kind::atomic, place);
  if (current->lane != 0)
    current->block.report("ticket of another lane", place, 0,
                          "the instruction adds lane + 1: lane 0 alone may take one");
  const int before = __atomic_fetch_add(counter, 1 + current->lane, __ATOMIC_RELAXED);
  scheduler().flag_changed();
  return before;
}

/// PTX ISA, "atom": performed without another operation between ("Atomicity"), in any order.
float atomic_add(float* address, float value) {
  check(address, GlobalMemory::Kind::atomic, TANDEM_PLACE);
  std::atomic_ref<float> target(*address);
  return target.fetch_add(value, std::memory_order_relaxed);
}

}  // namespace tandem::emulator
