// State of mbarriers and named barriers.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/emulator/clocks.hpp"

namespace tandem::emulator {

struct Thread;

/// PTX ISA, "mbarrier": a phase ends when no arrivals and no transaction bytes are pending.
struct MBarrier {
  uint32_t offset = 0;
  int expected = 0, pending = 0;
  int64_t bytes = 0;
  uint32_t phase = 0;
  Clocks arriving;      // what the arrivals of this phase bring
  Clocks completed[2];  // what a waiter on a completed phase of each parity comes after
  std::vector<Thread*> waiting;
  int last_thread = -1;  // the last to arrive
  uintptr_t last_place = 0;
};

/// PTX ISA, "barrier{.cta}": bar.sync waits, bar.arrive doesn't; both count.
struct NamedBarrier {
  int threads = 0, arrived = 0;
  Clocks clocks;
  std::vector<Thread*> waiting;
  uintptr_t place = 0;
  int last_thread = -1;
  // The use before this one: what its arrivals came after.
  int previous_threads = 0;
  VectorClock previous;
};

}  // namespace tandem::emulator
