// Instructions that the lanes of a warp execute together, and the special registers. Votes, shuffles and redux bring no
// order between memory accesses; bar.warp.sync does (PTX ISA, "bar.warp.sync").
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backends/emulator/collective.hpp"
#include "backends/emulator/matrix.hpp"
#include "backends/emulator/scheduler.hpp"

namespace tandem::emulator {

void* shared_memory(size_t bytes) {
  Block& block = current->block;
  if (bytes > block.shared_bytes()) {
    block.report("out of bounds", TANDEM_PLACE, 0, "the kernel's shared struct has %zu bytes, the launch gives %zu",
                 bytes, block.shared_bytes());
    scheduler().stop();
  }
  return block.shared();
}
uint32_t shared_address(const void* pointer) {
  return shared_window + current->block.offset_of(pointer, TANDEM_PLACE, 1);
}
int thread_index() { return current->index; }
int block_threads() { return current->block.thread_count(); }
int block_index() { return current->block.index(); }
int grid_size() { return current->block.run().grid; }

uint32_t uniform(uint32_t x) {
  const uintptr_t place = TANDEM_PLACE;
  return collective("redux", place, {x}, [place](Warp& warp) {
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const uint32_t first = warp.in[0][0], own = warp.in[static_cast<size_t>(lane)][0];
      if (own != first)
        current->block.report("not uniform", place, 0, "lanes disagree: %u in lane 0, %u in lane %d", first, own, lane);
      warp.out[static_cast<size_t>(lane)][0] = first;
    }
  })[0];
}

namespace {

/// A shuffle: `source(lane, argument)` is the lane that `lane` reads.
template <class Source>
uint32_t exchange(const char* name, uintptr_t place, uint32_t x, int argument, Source source) {
  return collective(name, place, {x, static_cast<uint32_t>(argument)}, [source](Warp& warp) {
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const int from = source(lane, static_cast<int>(warp.in[static_cast<size_t>(lane)][1]));
      warp.out[static_cast<size_t>(lane)][0] = warp.in[static_cast<size_t>(from)][0];
    }
  })[0];
}

}  // namespace

uint32_t shuffle_xor(uint32_t x, int mask) {
  return exchange("shfl.bfly", TANDEM_PLACE, x, mask, [](int lane, int m) { return (lane ^ m) & 31; });
}
uint32_t shuffle_up(uint32_t x, int lanes) {
  return exchange("shfl.up", TANDEM_PLACE, x, lanes, [](int lane, int n) { return lane < n ? lane : lane - n; });
}
uint32_t shuffle(uint32_t x, int lane) {
  return exchange("shfl.idx", TANDEM_PLACE, x, lane, [](int, int from) { return from & 31; });
}

uint32_t ballot(bool predicate) {
  return collective("vote", TANDEM_PLACE, {predicate}, [](Warp& warp) {
    uint32_t votes = 0;
    for (int lane = 0; lane < warp_lanes; ++lane) votes |= warp.in[static_cast<size_t>(lane)][0] << lane;
    for (auto& out : warp.out) out[0] = votes;
  })[0];
}

void sync_warp() {
  collective("bar.warp.sync", TANDEM_PLACE, {}, [](Warp&) {
    Clocks all;
    for_lanes([&all](Thread& thread) {
      all.join(thread.clocks);
      ++thread.clocks.generic[thread.actor()];
    });
    for_lanes([&all](Thread& thread) { thread.clocks.join(all); });
  });
}

void store_matrices(void* row, const uint32_t (&values)[4], bool transposed) {
  const uintptr_t place = TANDEM_PLACE;
  const uint32_t offset = current->block.offset_of(row, place, 16);
  collective("stmatrix", place, {offset, values[0], values[1], values[2], values[3]}, [place, transposed](Warp& warp) {
    Block& block = current->block;
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const uint32_t to = warp.in[static_cast<size_t>(lane)][0];
      block.shadow.generic(block.thread(current->warp * warp_lanes + lane), to, 16, true, place);
      if (to + 16 > block.shared_bytes()) continue;
      // Element e of row r of a matrix is in half e % 2 of lane 4 r + e / 2; transposed, r and e change places.
      const int matrix = lane / 8, r = lane % 8;
      for (int e = 0; e < 8; ++e) {
        const int major = transposed ? e : r, minor = transposed ? r : e;
        const uint32_t word = warp.in[static_cast<size_t>(major * 4 + minor / 2)][static_cast<size_t>(1 + matrix)];
        const auto element = static_cast<uint16_t>(word >> (minor % 2 * 16));
        std::memcpy(block.shared() + to + 2 * e, &element, 2);
      }
    }
  });
}

void load_matrices(const void* row, uint32_t (&values)[4], bool transposed) {
  const uintptr_t place = TANDEM_PLACE;
  const uint32_t offset = current->block.offset_of(row, place, 16);
  const auto out = collective("ldmatrix", place, {offset}, [place, transposed](Warp& warp) {
    Block& block = current->block;
    for (auto& lane : warp.out) lane = {};
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const uint32_t from = warp.in[static_cast<size_t>(lane)][0];
      block.shadow.generic(block.thread(current->warp * warp_lanes + lane), from, 16, false, place);
      if (from + 16 > block.shared_bytes()) continue;
      const int matrix = lane / 8, r = lane % 8;
      for (int e = 0; e < 8; ++e) {
        const int major = transposed ? e : r, minor = transposed ? r : e;
        uint16_t element;
        std::memcpy(&element, block.shared() + from + 2 * e, 2);
        warp.out[static_cast<size_t>(major * 4 + minor / 2)][static_cast<size_t>(matrix)] |=
            static_cast<uint32_t>(element) << (minor % 2 * 16);
      }
    }
  });
  std::copy(out.begin(), out.end(), values);
}

float exp2(float x) {
  current->work += Timeline::special_function_cost;
  if (std::fabs(x) < 0x1p-126f) return 1;
  const float y = ::exp2f(x);
  return y < 0x1p-126f ? 0 : y;  // ex2.approx.ftz flushes subnormal results
}

}  // namespace tandem::emulator
