// The kernel after the main one: dQ from the accumulator, which is in the order of wgmma's fragments, to rows of 16-bit
// elements, times the softmax scale. A block of threads for each query block of each head; memory-bound.
#pragma once

#include "backends/sm90/backward/elements.cuh"
#include "backends/sm90/tile/layout.hpp"

namespace tandem::internal::sm90::backward {

/// Rows are padded by one piece, so that the columns of neighbouring rows fall into different banks.
struct alignas(16) FinishShared {
  uint16_t tile[FinishParams::shared_bytes / 2];
  static constexpr ptx::Part parts[] = {{"tile", 0, sizeof(tile)}};
};

/// The accumulator holds, for each 64 columns and each 8 rows, the fragments of dQ^T that a warpgroup's 128 threads
/// have there: four floats, of two rows and two columns.
template <class Element>
TANDEM_DEVICE void collect(const FinishParams& p, const Quad* accumulator, uint16_t* tile, int pitch) {
  const int quads = p.blocks.tile * p.accumulator_dim / 4, of_columns = p.blocks.tile * 16;
  for (int i = ptx::thread_index(); i < quads; i += FinishParams::threads) {
    const Quad q = accumulator[i];
    const int chunk = i / of_columns, group = (i - chunk * of_columns) >> 7, warp = (i >> 5) & 3, lane = i & 31;
    uint16_t* at = tile + (8 * group + fragment_column(lane, 0)) * pitch + 64 * chunk + fragment_row(warp, lane);
    const uint32_t upper = ptx::pack<Element>(q.x * p.scale, q.y * p.scale);
    const uint32_t lower = ptx::pack<Element>(q.z * p.scale, q.w * p.scale);
    at[0] = static_cast<uint16_t>(upper);
    at[pitch] = static_cast<uint16_t>(upper >> 16);
    at[8] = static_cast<uint16_t>(lower);
    at[pitch + 8] = static_cast<uint16_t>(lower >> 16);
  }
}

TANDEM_DEVICE void finish(const FinishParams& p) {
  const int32_t head = ptx::block_index() / p.blocks.per_head;
  const BlockRows block = find_block(p.query_rows, p.blocks, p.batch, ptx::block_index() - head * p.blocks.per_head);
  if (block.rows <= 0) return;
  uint16_t* tile = ptx::dynamic_shared<FinishShared>().tile;
  const int pitch = p.accumulator_dim + 8;
  if (block.used > 0) {
    const Quad* accumulator = reinterpret_cast<const Quad*>(p.accumulator) +
                              static_cast<int64_t>(ptx::block_index()) * (p.blocks.tile * p.accumulator_dim / 4);
    if (p.is_bf16)
      collect<bf16>(p, accumulator, tile, pitch);
    else
      collect<fp16>(p, accumulator, tile, pitch);
  }
  ptx::sync_block();
  const int pieces = p.head_dim / 8;
  for (int i = ptx::thread_index(); i < p.blocks.tile * pieces; i += FinishParams::threads) {
    const int row = i / pieces, piece = i - row * pieces;
    if (row >= block.rows) break;
    Piece value{};  // 0 in the rows that don't count
    if (row < block.used) value = *reinterpret_cast<const Piece*>(tile + row * pitch + 8 * piece);
    uint16_t* out = static_cast<uint16_t*>(p.grad_query) + block.batch * p.layout.batch +
                    (block.offset + block.first + row) * p.layout.row + head * p.layout.head;
    reinterpret_cast<Piece*>(out)[piece] = value;
  }
}

}  // namespace tandem::internal::sm90::backward
