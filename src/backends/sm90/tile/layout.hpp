// Where elements lie: shared-memory tiles with their swizzle, and wgmma register fragments. Pure functions, so that
// host tests can check every map against the PTX ISA's figures.
#pragma once

#include "backends/sm90/ptx/types.hpp"
#include "common/portable.hpp"

namespace tandem::internal::sm90 {

/// A tile of so many columns is stored as chunks of whole swizzle rows, one after the other, so that TMA fills a chunk
/// with one box.
template <int columns, int element_bytes = 2>
struct ChunkLayout {
  static constexpr auto swizzle = ptx::widest_swizzle(columns * element_bytes);
  static constexpr int row_bytes = static_cast<int>(swizzle);
  static constexpr int chunk_columns = row_bytes / element_bytes;
  static_assert(columns % chunk_columns == 0);
  static constexpr int chunks = columns / chunk_columns;
  static constexpr int group_bytes = 8 * row_bytes;  // between groups of eight rows: a descriptor's stride offset
  static constexpr int steps = row_bytes / 32;       // wgmma's reductions of 32 bytes in a chunk of a K-major operand

  static TANDEM_SHARED_FUNCTION constexpr int bytes(int rows) { return rows * columns * element_bytes; }
  /// Bytes from the start of a tile with `rows` rows to its chunk c.
  static TANDEM_SHARED_FUNCTION constexpr int chunk_offset(int rows, int c) { return c * rows * row_bytes; }
  /// The same to the k-th reduction step of a K-major operand. The hardware swizzles addresses within the row itself.
  static TANDEM_SHARED_FUNCTION constexpr int step_offset(int rows, int k) {
    return chunk_offset(rows, k / steps) + k % steps * 32;
  }
};

/// The byte offset of (row, 16-byte piece) in a chunk, swizzled: the piece's number is xored with row bits, which in
/// bytes are address bits 7 and up (PTX ISA, "Swizzling Modes").
TANDEM_SHARED_FUNCTION constexpr int swizzled_offset(int row, int piece, int row_bytes) {
  const int offset = row * row_bytes + piece * 16;
  const int mask = row_bytes / 16 - 1;
  return offset ^ (((offset >> 7) & mask) << 4);
}

/// Accumulator i of a thread of a 64 x N wgmma (PTX ISA, "WGMMA.mma_async_m64nNk16_D"): its row among the warpgroup's
/// 64 is 16 * warp + lane / 4 + 8 * upper(i), its column 8 * (i / 4) + 2 * (lane % 4) + i % 2.
TANDEM_SHARED_FUNCTION constexpr int fragment_upper(int i) { return (i >> 1) & 1; }
TANDEM_SHARED_FUNCTION constexpr int fragment_column(int lane, int i) { return 8 * (i / 4) + 2 * (lane & 3) + (i & 1); }
/// Counts the columns of one row that a thread has.
TANDEM_SHARED_FUNCTION constexpr int fragment_bit(int i) { return i / 4 * 2 + (i & 1); }
TANDEM_SHARED_FUNCTION constexpr int fragment_row(int warp, int lane) { return 16 * warp + (lane >> 2); }

}  // namespace tandem::internal::sm90
