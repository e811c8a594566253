// mbarriers, for the files that complete them.
#pragma once

#include "backends/emulator/block.hpp"

namespace tandem::emulator {

/// The state of an mbarrier that a kernel names; reports one that isn't initialised, or not visibly so.
MBarrier& mbarrier(ptx::Barrier& object, uintptr_t place);

/// Ends the phase if nothing is pending.
void complete_phase(Block& block, MBarrier& barrier);

}  // namespace tandem::emulator
