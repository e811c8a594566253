// The TMA unit: tensor and bulk copies, asynchronous (PTX ISA, "Data Movement and Conversion Instructions: Asynchronous
// copy"). A copy's accesses are checked when it is issued; its bytes move when it completes.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "backends/emulator/matrix.hpp"
#include "backends/emulator/mbarrier.hpp"
#include "backends/emulator/scheduler.hpp"

namespace tandem::emulator {

namespace {

/// One row of a box: `bytes` in shared memory from `shared` on, of which [begin, end) lie in the tensor, at `global`.
struct Row {
  uint64_t global;  // of byte `begin`
  uint32_t shared;
  int bytes, begin, end;
};

/// Calls `visit(row)` for each row of the copy's box in the order of shared memory. Addresses wrap modulo 2^64, as in
/// the hardware; bounds are checked dimension by dimension.
template <class Visit>
void for_rows(const Copy& copy, Visit visit) {
  const EncodedMap& map = copy.map;
  const int row_bytes = map.box[0] * map.element_bytes;
  const int64_t first = copy.coordinates[0], size = static_cast<int64_t>(map.size_minus_1[0]) + 1;
  const auto begin = static_cast<int>(std::clamp<int64_t>(-first, 0, map.box[0]));
  const auto end = static_cast<int>(std::clamp<int64_t>(size - first, begin, map.box[0]));
  uint32_t shared = copy.shared;
  const int rows = map.box[1] * map.box[2] * map.box[3] * map.box[4];
  for (int row = 0; row < rows; ++row, shared += static_cast<uint32_t>(row_bytes)) {
    uint64_t address = map.base + static_cast<uint64_t>(first + begin) * map.element_bytes;
    bool inside = begin < end;
    for (int dimension = 1, rest = row; dimension < map.rank; rest /= map.box[dimension], ++dimension) {
      const int64_t at = static_cast<int64_t>(copy.coordinates[dimension]) + rest % map.box[dimension];
      inside = inside && at >= 0 && at <= static_cast<int64_t>(map.size_minus_1[dimension]);
      address += static_cast<uint64_t>(at) * map.stride[dimension - 1];
    }
    const int e = map.element_bytes;
    visit(inside ? Row{address, shared, row_bytes, begin * e, end * e} : Row{0, shared, row_bytes, 0, 0});
  }
}

/// Atomic, element by element: blocks on other host threads may add to the same place.
void add_floats(uint8_t* to, const uint8_t* from, int bytes) {
  for (int i = 0; i < bytes; i += 4) {
    float addend;
    std::memcpy(&addend, from + i, 4);
    std::atomic_ref<float>(*reinterpret_cast<float*>(to + i)).fetch_add(addend, std::memory_order_relaxed);
  }
}

/// Moves one 16-byte piece of a row, where [begin, end) of the row's bytes exist in global memory.
void move_piece(const Copy& copy, const Row& row, int piece, uint8_t* shared) {
  const int low = std::max(piece, row.begin), high = std::min(piece + 16, row.end);
  auto* global = reinterpret_cast<uint8_t*>(row.global) + (low - row.begin);
  if (copy.kind == Copy::Kind::load) std::memset(shared, 0, 16);
  if (low >= high) return;
  const auto count = static_cast<size_t>(high - low);
  uint8_t* const at = shared + (low - piece);
  switch (copy.kind) {
    case Copy::Kind::load:
      std::memcpy(at, global, count);
      break;
    case Copy::Kind::store:
      std::memcpy(global, at, count);
      break;
    case Copy::Kind::add:
      add_floats(global, at, static_cast<int>(count));
      break;
  }
}

void move_bytes(const Block& block, const Copy& copy) {
  if (!copy.tensor) {
    const Row row{copy.global, copy.shared, copy.bytes, 0, copy.bytes};
    for (int piece = 0; piece < row.bytes; piece += 16)
      move_piece(copy, row, piece, block.shared() + copy.shared + piece);
    return;
  }
  for_rows(copy, [&](const Row& row) {
    for (int piece = 0; piece < row.bytes; piece += 16) {
      const uint32_t address = shared_window + row.shared + static_cast<uint32_t>(piece);
      move_piece(copy, row, piece, block.shared() + swizzled(address, copy.map.swizzle) - shared_window);
    }
  });
}

/// Checks the copy's accesses to global memory; ends the launch where they would leave every buffer.
void check_global(const Copy& copy) {
  const auto kind = copy.kind == Copy::Kind::load    ? GlobalMemory::Kind::read
                    : copy.kind == Copy::Kind::store ? GlobalMemory::Kind::write
                                                     : GlobalMemory::Kind::atomic;
  GlobalMemory& global = current->block.run().global;
  bool good = true;
  if (!copy.tensor) {
    good = global.async_access(*current, copy, copy.global, static_cast<size_t>(copy.bytes), kind);
  } else {
    for_rows(copy, [&](const Row& row) {
      if (good && row.begin < row.end)
        good = global.async_access(*current, copy, row.global, static_cast<size_t>(row.end - row.begin), kind);
    });
  }
  if (!good) scheduler().stop();
}

/// A tensor copy as far as its map says; ends the launch if it isn't one.
Copy tensor_copy(const ptx::TensorMap& map, const int* coordinates, int rank, uintptr_t place) {
  Copy copy;
  copy.tensor = true;
  copy.place = place;
  copy.issuer = current;
  std::memcpy(&copy.map, &map, sizeof copy.map);
  if (copy.map.magic != EncodedMap::valid || copy.map.rank != rank) {
    current->block.report("bad tensor map", place, 0, "%s",
                          copy.map.magic == EncodedMap::valid ? "its rank isn't the instruction's"
                                                              : "it wasn't made by the emulator's encoder");
    scheduler().stop();
  }
  std::copy(coordinates, coordinates + rank, copy.coordinates);
  if (coordinates[0] * copy.map.element_bytes % 16) {  // an illegal instruction on the hardware
    current->block.report("misaligned", place, 0, "the box begins at column %d, not at a multiple of 16 bytes",
                          coordinates[0]);
    scheduler().stop();
  }
  copy.bytes = copy.map.box_bytes();
  return copy;
}

Copy bulk_copy(const void* global, int bytes, uintptr_t place) {
  Copy copy;
  copy.place = place;
  copy.issuer = current;
  copy.global = reinterpret_cast<uint64_t>(global);
  copy.bytes = bytes;
  if (copy.global % 16 || bytes % 16 || bytes <= 0) {
    current->block.report("misaligned", place, 0, "bulk copy of %d bytes at 0x%zx: both must be multiples of 16", bytes,
                          static_cast<size_t>(copy.global));
    scheduler().stop();
  }
  return copy;
}

void issue_load(Copy copy, void* destination, ptx::Barrier& object) {
  Block& block = current->block;
  const uintptr_t place = copy.place;
  copy.kind = Copy::Kind::load;
  copy.shared = block.offset_of(destination, place, copy.tensor ? 128 : 16);
  copy.barrier = &mbarrier(object, place);
  uintptr_t writer = 0;
  if (!block.shadow.written_before(*current, copy.barrier->offset, true, &writer))
    block.report("missing proxy fence", place, writer, "mbarrier %s is initialised with no fence to the async proxy",
                 block.name_of(copy.barrier->offset).c_str());
  if (copy.shared + static_cast<size_t>(copy.bytes) > block.shared_bytes()) {
    block.report("out of bounds", place, 0, "TMA load of %d bytes to %s", copy.bytes,
                 block.name_of(copy.shared).c_str());
    scheduler().stop();
  }
  block.assign_actors(copy);
  check_global(copy);
  block.shadow.async_write(*current, copy.shared_actor, copy.shared_clock, copy.shared,
                           static_cast<uint32_t>(copy.bytes), place);
  std::memset(block.shared() + copy.shared, 0xff, static_cast<size_t>(copy.bytes));  // NaN until it completes
  block.start(copy);
  scheduler().maybe_preempt();
}

void issue_store(Copy copy, const void* source, bool add) {
  Block& block = current->block;
  const uintptr_t place = copy.place;
  copy.kind = add ? Copy::Kind::add : Copy::Kind::store;
  if (std::any_of(copy.coordinates, copy.coordinates + 5, [](int at) { return at < 0; })) {
    block.report("out of bounds", place, 0, "a store's box begins below 0: an illegal instruction on the hardware");
    scheduler().stop();
  }
  copy.shared = block.offset_of(source, place, copy.tensor ? 128 : 16);
  if (add && copy.tensor && !copy.map.float32)
    block.report("bad tensor map", place, 0, "a reduction of elements that aren't float32");
  block.assign_actors(copy);
  block.shadow.async_read({copy.shared_actor, copy.shared_clock, current->clocks.generic, current->clocks.async, place},
                          copy.shared, static_cast<uint32_t>(copy.bytes));
  if (copy.shared + static_cast<size_t>(copy.bytes) > block.shared_bytes()) scheduler().stop();
  check_global(copy);
  current->bulk.open.push_back(block.start(copy));
}

}  // namespace

void finish(Block& block, Copy& copy) {
  move_bytes(block, copy);
  copy.done = true;
  if (copy.kind != Copy::Kind::load) {
    if (copy.issuer->wait.on == Waiting::bulk) block.scheduler().wake(*copy.issuer);
    return;
  }
  MBarrier& barrier = *copy.barrier;
  barrier.bytes -= copy.bytes;
  barrier.arriving.generic.join(VectorClock(actor::count(0)));
  barrier.arriving.generic[copy.shared_actor] = copy.shared_clock;
  barrier.arriving.generic[copy.global_actor] = copy.global_clock;
  if (barrier.pending == 0 && barrier.bytes < 0)
    block.report("transaction bytes", copy.place, barrier.last_place,
                 "mbarrier %s: %ld bytes more came than it expects", block.name_of(barrier.offset).c_str(),
                 static_cast<long>(-barrier.bytes));
  complete_phase(block, barrier);
}

void tma_load(void* destination, const ptx::TensorMap& map, ptx::Barrier& barrier, const int* coordinates, int rank) {
  issue_load(tensor_copy(map, coordinates, rank, TANDEM_PLACE), destination, barrier);
}
void tma_store(const ptx::TensorMap& map, const void* source, const int* coordinates, int rank, bool add) {
  issue_store(tensor_copy(map, coordinates, rank, TANDEM_PLACE), source, add);
}
void bulk_load(void* destination, const void* source, int bytes, ptx::Barrier& barrier) {
  issue_load(bulk_copy(source, bytes, TANDEM_PLACE), destination, barrier);
}
void bulk_store(void* destination, const void* source, int bytes, bool add) {
  issue_store(bulk_copy(destination, bytes, TANDEM_PLACE), source, add);
}

void bulk_commit() {
  BulkGroups& bulk = current->bulk;
  bulk.committed.push_back({std::move(bulk.open), false});
  bulk.open.clear();
}

void bulk_wait(int groups, bool read_only) {
  const uintptr_t place = TANDEM_PLACE;
  Thread& self = *current;
  Block& block = self.block;
  auto& committed = self.bulk.committed;
  const double begin = self.time;
  const size_t waited = committed.size() - std::min(committed.size(), static_cast<size_t>(groups));
  for (size_t i = 0; i < waited; ++i) {
    for (const int index : committed[i].copies) {
      const Copy& copy = block.copies[static_cast<size_t>(index)];
      while (!copy.done) scheduler().suspend(Waiting::bulk, "bulk group", index, 0, place);
      uint32_t& shared = self.clocks.generic[copy.shared_actor];
      shared = std::max(shared, copy.shared_clock);
      uint32_t& global = self.clocks.generic[copy.global_actor];
      if (!read_only) global = std::max(global, copy.global_clock);
    }
    committed[i].read = true;
  }
  if (!read_only) committed.erase(committed.begin(), committed.begin() + static_cast<std::ptrdiff_t>(waited));
  if (block.timeline.on()) block.timeline.waited(self, "wait", "bulk group", begin);
}

}  // namespace tandem::emulator
