// setmaxnreg (PTX ISA, "Miscellaneous Instructions"): registers move between warpgroups; an increase waits until the
// block's pool has enough.
#include "backends/emulator/scheduler.hpp"

namespace tandem::emulator {

namespace {

constexpr int warpgroup_threads = 128;

bool take(Block& block, Warpgroup& warpgroup, int count) {
  int total = 0;
  for (const Warpgroup& other : block.warpgroups) total += &other == &warpgroup ? count : other.registers;
  if (total > block.register_pool) return false;
  warpgroup.registers = count;
  warpgroup.arrived = 0;
  warpgroup.all_arrived = false;
  ++warpgroup.turn;
  for (const auto& thread : block.threads)
    if (thread->blocked && thread->wait.on == Waiting::registers) block.scheduler().wake(*thread);
  return true;
}

}  // namespace

void set_registers(int count, bool up) {
  const uintptr_t place = TANDEM_PLACE;
  Block& block = current->block;
  Warpgroup& warpgroup = block.warpgroup_of(*current);
  if (count % 8 || count < 24 || count > 256)
    block.report("registers", place, 0, "setmaxnreg %d; multiples of 8 from 24 to 256 are allowed", count);
  if (warpgroup.arrived == 0) warpgroup.wanted = count;
  if (warpgroup.wanted != count)
    block.report("registers", place, 0, "the warps of a warpgroup disagree: %d and %d", count, warpgroup.wanted);
  if (up ? count < warpgroup.registers : count > warpgroup.registers)
    block.report("registers", place, 0, "setmaxnreg.%s from %d to %d", up ? "inc" : "dec", warpgroup.registers, count);
  if (block.timeline.on()) block.timeline.registers(*current, up);
  const uint64_t turn = warpgroup.turn;
  if (++warpgroup.arrived == warpgroup_threads) warpgroup.all_arrived = true;
  while (warpgroup.turn == turn) {
    if (warpgroup.all_arrived && take(block, warpgroup, count)) break;
    scheduler().suspend(Waiting::registers, "setmaxnreg", 0, count, place);
  }
}

}  // namespace tandem::emulator
