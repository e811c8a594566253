// State of wgmma: accumulators and operand registers that the tensor cores own, and the queue of a warpgroup.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "backends/emulator/runtime.hpp"

namespace tandem::emulator {

/// Accumulators in flight. Their true values are here; the program's array holds a NaN of the emulator's own until a
/// wait names it.
struct Accumulators {
  uint32_t* data;
  int count;
  std::vector<uint32_t> values;
  uint64_t last_operation;  // of the thread's, counted from 1
  bool poisoned() const;
  void poison();
};

/// Registers that a wgmma in flight reads as its A operand.
struct OperandRegisters {
  const uint32_t* data;
  std::array<uint32_t, 4> values;
  uint64_t operation;
  uintptr_t place;
};

struct WgmmaThread {
  uint64_t issued = 0, completed = 0;
  std::deque<uint64_t> groups;  // the count of issued operations at each commit not yet waited for
  std::vector<std::unique_ptr<Accumulators>> accumulators;
  std::vector<OperandRegisters> operands;
  std::vector<Span> fenced;  // arrays that wgmma.fence named and that weren't touched since
};

struct WgmmaOperation {
  WgmmaShape shape;
  ptx::Descriptor a, b;
  bool from_registers, accumulate;
  uintptr_t place;
  int arrived = 0;
  bool done = false;
  double end = 0;  // virtual time
  std::array<uint32_t, 4> warp_clock{};
  std::array<std::array<uint32_t, 4>, 128> a_registers;
  std::array<Accumulators*, 128> accumulators;
};

struct Warpgroup {
  std::deque<std::unique_ptr<WgmmaOperation>> queue;
  uint64_t first = 0, executed = 0;  // numbers of the queue's first operation and of the next to compute
  // setmaxnreg
  int registers = 0, wanted = 0, arrived = 0;
  bool all_arrived = false;
  uint64_t turn = 0;
};

}  // namespace tandem::emulator
