// What the kernels before and after the main one share: 16-byte pieces of rows, and where a query block's rows lie.
#pragma once

#include <bit>

#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/forward/scheduler.cuh"
#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90::backward {

/// Eight 16-bit elements.
struct alignas(16) Piece {
  uint32_t words[4];
};
/// Four floats.
struct alignas(16) Quad {
  float x, y, z, w;
};

/// The float with the bits of a 16-bit element, the lower half of `word`.
template <class Element>
TANDEM_DEVICE float widen(uint32_t word);
template <>
TANDEM_DEVICE float widen<bf16>(uint32_t word) {
  return std::bit_cast<float>(word << 16);
}
template <>
TANDEM_DEVICE float widen<fp16>(uint32_t word) {
  const uint32_t magnitude = word & 0x7fffu, sign = (word & 0x8000u) << 16;
  // The exponent's bias differs by 112; infinity and NaN have an exponent of their own.
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | magnitude << 13);
  return std::bit_cast<float>(sign | magnitude << 13) * 0x1p112f;
}

/// A query block of one head: the sequence's rows from `first` on. In memory row 0 is `offset` rows behind the batch's
/// first. Row counts are relative to `first`: `used` count, `rows` exist.
struct BlockRows {
  int32_t batch, first, offset, used, rows;
};

/// Which query block of which head a block of threads works on: neighbours on the heads of one query block, whose rows
/// lie side by side; and the last query blocks first. So the main kernel begins where `prepare` ends, and `finish`
/// begins where the main kernel ends: what was written there is still in the cache.
struct Assignment {
  int32_t head, number;
  int64_t place;  // in the workspace
};
TANDEM_DEVICE Assignment assigned_block(const QueryBlocks& blocks) {
  const int32_t heads = ptx::grid_size() / blocks.per_head, index = ptx::grid_size() - 1 - ptx::block_index();
  const int32_t number = index / heads, head = index - number * heads;
  return {head, number, static_cast<int64_t>(head) * blocks.per_head + number};
}

/// The block with that number in the workspace, if any rows lie in it.
TANDEM_DEVICE BlockRows find_block(const forward::Rows& rows, const QueryBlocks& blocks, int32_t batch,
                                   int32_t number) {
  const bool packed = rows.cumulative != nullptr;
  int32_t sequence = packed ? 0 : number / blocks.per_sequence;
  if (packed) {
    // The last sequence whose first block isn't behind this one; number `batch` is the rows behind all sequences.
    int32_t above = batch + 1;
    while (above - sequence > 1) {
      const int32_t middle = sequence + (above - sequence) / 2;
      const bool behind = blocks.first(middle, forward::locate(rows, middle, batch).offset, true) > number;
      (behind ? above : sequence) = middle;
    }
  }
  const forward::Sequence found = forward::locate(rows, sequence, batch);
  const int32_t first = (number - blocks.first(sequence, found.offset, packed)) * blocks.tile;
  return {sequence, first, packed ? found.offset : 0, found.used - first, found.rows - first};
}

}  // namespace tandem::internal::sm90::backward
