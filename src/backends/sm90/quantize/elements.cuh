// What the quantiser's kernels share: pieces of rows as floats, the largest magnitude of a block, its scale.
#pragma once

#include "backends/sm90/backward/elements.cuh"
#include "backends/sm90/quantize/params.hpp"

namespace tandem::internal::sm90::quantize {

using backward::BlockRows;
using backward::Piece;

constexpr float infinity = __builtin_huge_valf();

/// The block with that number; `batch` is the source's where there is none. In uniform registers, of which there are
/// enough, while a thread's own are full of elements.
TANDEM_DEVICE BlockRows find_block(const Source& source, int number) {
  const BlockRows block = backward::find_block(source.rows, source.blocks, source.batch, number);
  return {ptx::uniform(block.batch), ptx::uniform(block.first), ptx::uniform(block.offset), ptx::uniform(block.used),
          ptx::uniform(block.rows)};
}

/// Row `row` of the block's sequence, counted from the block's first.
TANDEM_DEVICE const uint16_t* row_of(const Source& source, const BlockRows& block, int row, int head) {
  const Layout& l = source.layout;
  return source.data + block.batch * l.batch + static_cast<int64_t>(block.offset + block.first + row) * l.row +
         head * l.head;
}

TANDEM_DEVICE Piece load_by_elements(const uint16_t* at) {
  Piece result;
#pragma unroll
  for (int i = 0; i < 4; ++i) result.words[i] = at[2 * i] | static_cast<uint32_t>(at[2 * i + 1]) << 16;
  return result;
}

TANDEM_DEVICE bool finite(float x) { return ptx::magnitude(x) < infinity; }

/// Two arrays of a float a warp: one is read while the next is written.
struct alignas(16) RowsShared {
  float largest[2][32];
  static constexpr ptx::Part parts[] = {{"largest", 0, sizeof(largest)}};
};
static_assert(sizeof(RowsShared) == rows_shared_bytes);

/// The largest of all threads' numbers, none of which is negative or NaN, in all threads.
TANDEM_DEVICE float block_maximum(float x, float* of_warps) {
  const int lane = ptx::thread_index() & 31;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x = ptx::maximum(x, ptx::shuffle_xor(x, distance));
  if (lane == 0) of_warps[ptx::thread_index() >> 5] = x;
  ptx::sync_block();
  x = lane < ptx::block_threads() >> 5 ? of_warps[lane] : 0;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x = ptx::maximum(x, ptx::shuffle_xor(x, distance));
  return x;
}

/// Where the scale of a block lies.
TANDEM_DEVICE float* scale_at(const Scaling& s, const Source& source, const BlockRows& block, int number, int head) {
  const bool packed = source.rows.cumulative != nullptr;
  const int64_t index = packed ? number : number - block.batch * source.blocks.per_sequence;
  return s.scales.data + block.batch * s.scales.batch + head * s.scales.head + index * s.scales.block;
}

/// Quantises a block of rows of one head. Of a block that doesn't fit into registers at once, all parts but the last
/// are loaded again, from the cache, when the scale is known.
template <class Tile>
TANDEM_DEVICE void quantize_block(Tile& tile, const Scaling& s, const Source& source, const BlockRows& block,
                                  int number, int head, float* of_warps) {
  const int parts = tile.parts(), last = parts - 1, steps = s.search == Search::own ? 2 * parts - 1 : parts;
  float largest = 0, factor = 1;
  if (s.search == Search::known) factor = factor_of(*scale_at(s, source, block, number, head), s.norm);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int part = step <= last ? step : step - parts;
    tile.load(head, part);
    if (s.search != Search::known && step <= last) largest = ptx::maximum(largest, tile.largest());
    if (step < last || s.search == Search::none) continue;
    if (s.search == Search::own && step == last) {
      const float scale = scale_of(block_maximum(largest, of_warps) * s.norm, s.largest, s.power_of_two);
      if (ptx::thread_index() == 0) *scale_at(s, source, block, number, head) = scale;
      factor = factor_of(scale, s.norm);
    }
    tile.store(head, part, factor);
  }
  if (s.search != Search::none) return;
  largest = block_maximum(largest, of_warps);
  if (ptx::thread_index() == 0) s.found[static_cast<int64_t>(number) * source.heads + head] = largest;
}

/// The same for heads that follow each other.
template <class Tile>
TANDEM_DEVICE void quantize_heads(Tile& tile, const Scaling& s, const Source& source, const BlockRows& block,
                                  int number, int first, int last, RowsShared& shared) {
#pragma unroll 1
  for (int head = first; head < last; ++head)
    quantize_block(tile, s, source, block, number, head, shared.largest[head & 1]);
}

}  // namespace tandem::internal::sm90::quantize
