// Shadow of a block's shared memory: who wrote and read each place last, and when, to find races, missing proxy fences,
// memory in use by an asynchronous copy or a wgmma, and memory that nobody wrote.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backends/emulator/clocks.hpp"

namespace tandem::emulator {

class Block;
struct Thread;

/// A return address in four bytes: kernels lie within 2 GiB of the emulator's own code.
class Place {
 public:
  Place() = default;
  Place(uintptr_t address)
      : offset_(static_cast<int32_t>(address - anchor())) {}  // NOLINT(google-explicit-constructor)
  operator uintptr_t() const { return anchor() + static_cast<intptr_t>(offset_); }  // NOLINT

 private:
  static uintptr_t anchor();
  int32_t offset_ = 0;
};

class SharedShadow {
 public:
  explicit SharedShadow(Block& block);

  /// An ordinary load or store by `thread`. Offsets count from the begin of the block's shared memory.
  void generic(Thread& thread, uint32_t offset, uint32_t bytes, bool write, uintptr_t place);

  /// A read by the asynchronous proxy of 16-byte pieces, on behalf of a warp's wgmma or of a copy.
  struct Reader {
    int actor;
    uint32_t clock;
    const VectorClock& generic;  // the issuer's
    const VectorClock& async;
    uintptr_t place;
  };
  void async_read(const Reader& reader, uint32_t offset, uint32_t bytes);

  /// A write by a copy in flight, which owns the place until its completion is waited for.
  void async_write(Thread& issuer, int actor, uint32_t clock, uint32_t offset, uint32_t bytes, uintptr_t place);

  /// Whether the last ordinary write to this place happens before what `thread` may rely on (`async`: what copies see).
  bool written_before(const Thread& thread, uint32_t offset, bool async, uintptr_t* writer) const;

 private:
  struct Access {
    uint16_t actor;
    uint8_t mask;  // which bytes of the cell
    uint32_t clock;
    Place place;
  };
  /// Four bytes, as ordinary accesses see them.
  struct Cell {
    uint8_t writes = 0, initialised = 0;
    std::array<Access, 4> write;
    std::vector<Access> reads;
  };
  /// Sixteen bytes, as the asynchronous proxy sees them.
  struct Chunk {
    uint32_t load_clock = 0, store_clock = 0;  // of the copy that writes it, and of the one that reads it
    uint16_t load_actor = 0, store_actor = 0;
    Place load_place, store_place, wgmma_place;
    bool wgmma_reads = false, ordinary = false;  // by whom it was touched since the last copy wrote it
    std::array<uint32_t, max_warps> wgmma_clock{};
  };

  void check_chunk(const Thread& thread, Chunk& chunk, uint32_t offset, bool write, uintptr_t place);
  void read_cell(Thread& thread, Cell& cell, uint8_t mask, uint32_t offset, uintptr_t place);
  void write_cell(Thread& thread, Cell& cell, uint8_t mask, uint32_t offset, uintptr_t place);
  void check_wgmma_reads(const VectorClock& generic, const Chunk& chunk, uint32_t offset, const char* what,
                         uintptr_t place);
  bool check_async_cell(const Reader& reader, const Cell& cell, bool loaded, uint32_t offset);

  Block& block_;
  std::vector<Cell> cells_;
  std::vector<Chunk> chunks_;
};

}  // namespace tandem::emulator
