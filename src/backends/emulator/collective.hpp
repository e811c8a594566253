// The rendezvous of a warp's lanes.
#pragma once

#include <array>
#include <initializer_list>

#include "backends/emulator/scheduler.hpp"

namespace tandem::emulator {

/// Calls `visit` for each lane of the current thread's warp.
template <class Visit>
void for_lanes(Visit visit) {
  Block& block = current->block;
  for (int lane = 0; lane < warp_lanes; ++lane) visit(block.thread(current->warp * warp_lanes + lane));
}

/// Waits until all lanes of the warp are here with their inputs; the last to come calls `together`, which sees all
/// inputs and sets all outputs. Returns this lane's. Reports lanes that are at another instruction.
template <class Together>
std::array<uint32_t, 4> collective(const char* instruction, uintptr_t place, std::initializer_list<uint32_t> inputs,
                                   Together together) {
  Block& block = current->block;
  Warp& warp = block.warp_at(current->warp);
  const auto lane = static_cast<size_t>(current->lane);
  if (warp.arrived == 0) {
    warp.instruction = instruction;
    warp.place = place;
  } else if (warp.instruction != instruction) {
    block.report("divergent collective", place, warp.place, "%s, while other lanes of the warp are at %s", instruction,
                 warp.instruction);
  }
  std::copy(inputs.begin(), inputs.end(), warp.in[lane].begin());
  if (++warp.arrived < warp_lanes) {
    block.scheduler().suspend(Waiting::collective, instruction, 0, 0, place);
  } else {
    warp.arrived = 0;
    block.timeline.rendezvous(block, current->warp);
    together(warp);
    for_lanes([&block](Thread& thread) {
      if (&thread != current) block.scheduler().wake(thread);
    });
  }
  return warp.out[lane];
}

}  // namespace tandem::emulator
