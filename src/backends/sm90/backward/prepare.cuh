// The kernel before the main one (FA-3 Algorithm 3, line 1): D = rowsum(dO * O), LSE in log2 units, and flags cleared.
// A block of threads for each query block of each head; memory-bound.
#pragma once

#include "backends/sm90/backward/elements.cuh"

namespace tandem::internal::sm90::backward {

template <class Element>
TANDEM_DEVICE float piece_dot(const Piece& a, const Piece& b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    sum += widen<Element>(a.words[i] & 0xffffu) * widen<Element>(b.words[i] & 0xffffu) +
           widen<Element>(a.words[i] >> 16) * widen<Element>(b.words[i] >> 16);
  return sum;
}

/// `lanes` threads share a row; each has several rows on their way at once, to keep enough loads in flight.
template <class Element>
TANDEM_DEVICE void row_statistics(const PrepareParams& p, const BlockRows& block, int32_t head, float* statistics) {
  constexpr float log2_e = 1.4426950408889634f, infinity = __builtin_huge_valf();
  constexpr int batch = 4;
  const int pieces = p.value_dim / 8;
  const int lanes = pieces > 16 ? 32 : pieces > 8 ? 16 : 8;
  const int lane = ptx::thread_index() % lanes, step = PrepareParams::threads / lanes;
  const auto at = [&](const void* data, const Layout& layout, int row) {
    return reinterpret_cast<const Piece*>(static_cast<const uint16_t*>(data) + block.batch * layout.batch +
                                          (block.offset + block.first + row) * layout.row + head * layout.head) +
           lane;
  };
  for (int first = ptx::thread_index() / lanes; first < p.blocks.tile; first += batch * step) {
    Piece out[batch]{}, grad_out[batch]{};
    float lse[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int row = first + u * step;
      lse[u] = infinity;
      if (row >= block.used) continue;
      if (lane < pieces) {
        out[u] = *at(p.out, p.out_layout, row);
        grad_out[u] = *at(p.grad_out, p.grad_out_layout, row);
      }
      const Layout& l = p.lse_layout;
      lse[u] = p.lse[block.batch * l.batch + (block.offset + block.first + row) * l.row + head * l.head];
    }
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int row = first + u * step;
      float delta = piece_dot<Element>(out[u], grad_out[u]);
      for (int distance = lanes / 2; distance > 0; distance /= 2) delta += ptx::shuffle_xor(delta, distance);
      if (lane != 0 || row >= p.blocks.tile) continue;
      statistics[row] = lse[u] == -infinity ? infinity : lse[u] * log2_e;  // -inf: sees no key
      statistics[p.blocks.tile + row] = delta;
    }
  }
}

TANDEM_DEVICE void prepare(const PrepareParams& p) {
  ptx::allow_next_kernel();
  const Assignment at = assigned_block(p.blocks);
  const BlockRows block = find_block(p.query_rows, p.blocks, p.batch, at.number);
  if (ptx::block_index() == 0 && ptx::thread_index() == 0) {
    if (p.tile_counter != nullptr) *p.tile_counter = 0;
    if (p.query_tile_counter != nullptr) *p.query_tile_counter = 0;
  }
  if (block.used <= 0) return;
  if (p.flags != nullptr && ptx::thread_index() == 0) p.flags[at.place] = 0;
  float* statistics = p.statistics + at.place * 2 * p.blocks.tile;
  if (p.is_bf16)
    row_statistics<bf16>(p, block, at.head, statistics);
  else
    row_statistics<fp16>(p, block, at.head, statistics);
}

}  // namespace tandem::internal::sm90::backward
