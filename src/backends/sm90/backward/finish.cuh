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

/// Four floats of the accumulator, two of each of two rows or columns: where they belong in the tile.
struct Place {
  int row, column;
};

/// For each 64 columns and each 8 rows the fragments of dQ^T that a warpgroup's 128 threads have there.
TANDEM_DEVICE Place of_quad(const FinishParams& p, int quad) {
  const int of_columns = p.blocks.tile * 16, chunk = quad / of_columns, group = (quad - chunk * of_columns) >> 7;
  return {8 * group + fragment_column(quad & 31, 0), 64 * chunk + fragment_row(quad >> 5 & 3, quad & 31)};
}

template <class Element>
TANDEM_DEVICE void place(const FinishParams& p, const Quad& q, int quad, uint16_t* tile, int pitch) {
  const uint32_t first = ptx::pack<Element>(q.x * p.scale, q.y * p.scale);
  const uint32_t second = ptx::pack<Element>(q.z * p.scale, q.w * p.scale);
  const Place place = of_quad(p, quad);
  uint16_t* at = tile + place.row * pitch + place.column;
  at[0] = static_cast<uint16_t>(first);
  at[pitch] = static_cast<uint16_t>(first >> 16);
  at[8] = static_cast<uint16_t>(second);
  at[pitch + 8] = static_cast<uint16_t>(second >> 16);
}

template <class Element>
TANDEM_DEVICE void collect(const FinishParams& p, const Quad* accumulator, uint16_t* tile, int pitch) {
  constexpr int batch = 4;  // loads on their way at once; all query blocks are multiples of that many
  const int quads = p.blocks.tile * p.accumulator_dim / 4;
  for (int first = ptx::thread_index(); first < quads; first += batch * FinishParams::threads) {
    Quad q[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) q[u] = accumulator[first + u * FinishParams::threads];
#pragma unroll
    for (int u = 0; u < batch; ++u) place<Element>(p, q[u], first + u * FinishParams::threads, tile, pitch);
  }
}

TANDEM_DEVICE void finish(const FinishParams& p) {
  ptx::wait_for_previous_kernel();
  const Assignment at = assigned_block(p.blocks);
  const BlockRows block = find_block(p.query_rows, p.blocks, p.batch, at.number);
  if (block.rows <= 0) return;
  const int used = block.used > 0 && p.flags[at.place] != 0 ? block.used : 0;  // 0: the block sees no key
  uint16_t* tile = ptx::dynamic_shared<FinishShared>().tile;
  const int pitch = p.accumulator_dim + 8;
  if (used > 0) {
    const Quad* accumulator =
        reinterpret_cast<const Quad*>(p.accumulator) + at.place * (p.blocks.tile * p.accumulator_dim / 4);
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
    if (row < used) value = *reinterpret_cast<const Piece*>(tile + row * pitch + 8 * piece);
    uint16_t* out = static_cast<uint16_t*>(p.grad_query) + block.batch * p.layout.batch +
                    (block.offset + block.first + row) * p.layout.row + at.head * p.layout.head;
    reinterpret_cast<Piece*>(out)[piece] = value;
  }
}

}  // namespace tandem::internal::sm90::backward
