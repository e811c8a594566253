// The kernels that read first where a scale or a mean depends on more than a block: columns of value, and the sums and
// maxima of what was found in blocks and chunks. The order of sums is that of common/rounding.hpp.
#pragma once

#include "backends/sm90/quantize/elements.cuh"

namespace tandem::internal::sm90::quantize {

struct alignas(16) ColumnsShared {
  float found[3][mean_lanes][256];  // sums, smallest, largest
  static constexpr ptx::Part parts[] = {{"found", 0, sizeof(found[0])}};
};
static_assert(sizeof(ColumnsShared) == columns_shared_bytes);

/// A thread's part of a chunk: one piece of every 16th row.
template <class Element>
TANDEM_DEVICE void search_pieces(const ColumnsParams& p, const BlockRows& block, int head, int lane, int column,
                                 ColumnsShared& shared) {
  constexpr int rows = mean_chunk / mean_lanes;
  Piece raw[rows]{};
#pragma unroll
  for (int k = 0; k < rows; ++k) {
    const int row = lane + k * mean_lanes;
    const uint16_t* at = row_of(p.source, block, row, head) + column;
    if (row < block.used) raw[k] = p.source.wide ? *reinterpret_cast<const Piece*>(at) : load_by_elements(at);
  }
#pragma unroll
  for (int i = 0; i < piece; ++i) {
    float sum = 0, smallest = infinity, largest = -infinity;
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      float x[2];
      ptx::unpack<Element>(raw[k].words[i / 2], x[0], x[1]);
      if (!finite(x[i % 2]) || lane + k * mean_lanes >= block.used) continue;
      sum += x[i % 2];
      smallest = ptx::minimum(smallest, x[i % 2]);
      largest = ptx::maximum(largest, x[i % 2]);
    }
    shared.found[0][lane][column + i] = sum;
    shared.found[1][lane][column + i] = smallest;
    shared.found[2][lane][column + i] = largest;
  }
}

TANDEM_DEVICE void search_columns(const ColumnsParams& p) {
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  ColumnsShared& shared = ptx::dynamic_shared<ColumnsShared>();
  const int number = ptx::block_index() / p.source.heads, head = ptx::block_index() - number * p.source.heads;
  const BlockRows block = find_block(p.source, number);
  if (block.batch >= p.source.batch || block.rows <= 0) return;
  const int columns = p.source.columns, pieces = columns / piece;
  const int lane = ptx::thread_index() / pieces, column = piece * (ptx::thread_index() - lane * pieces);
  if (lane < mean_lanes) {
    if (p.source.is_bf16)
      search_pieces<bf16>(p, block, head, lane, column, shared);
    else
      search_pieces<fp16>(p, block, head, lane, column, shared);
  }
  ptx::sync_block();
  float* found = p.found + (static_cast<int64_t>(number) * p.source.heads + head) * (p.extremes ? 3 : 1) * columns;
  for (int c = ptx::thread_index(); c < columns; c += ptx::block_threads()) {
    float sum = 0, smallest = infinity, largest = -infinity;
    for (int l = 0; l < mean_lanes; ++l) {
      sum += shared.found[0][l][c];
      smallest = ptx::minimum(smallest, shared.found[1][l][c]);
      largest = ptx::maximum(largest, shared.found[2][l][c]);
    }
    found[c] = sum;
    if (!p.extremes) continue;
    found[columns + c] = smallest;
    found[2 * columns + c] = largest;
  }
}

struct alignas(16) CombineShared {
  static constexpr int columns = 128;  // at once
  float found[3][mean_slots][columns];
  static constexpr ptx::Part parts[] = {{"found", 0, sizeof(found[0])}};
};
static_assert(sizeof(CombineShared) == combine_shared_bytes);

/// The numbers of the blocks that a sequence has in `found`.
TANDEM_DEVICE Range blocks_of(const CombineParams& p, int sequence) {
  const bool packed = p.rows.cumulative != nullptr;
  const forward::Sequence s = forward::locate(p.rows, sequence, p.batch);
  const int first = p.blocks.first(sequence, packed ? s.offset : 0, packed);
  return {first, first + (packed ? ceil_divide(s.rows, p.blocks.tile) : p.blocks.per_sequence)};
}

/// The mean of each of a head's columns, and the largest magnitude that is left when it is taken out.
TANDEM_DEVICE void combine_columns(const CombineParams& p, CombineShared& shared) {
  constexpr int wide = CombineShared::columns;
  const int sequence = ptx::block_index() / p.heads, head = ptx::block_index() - sequence * p.heads;
  const Range blocks = blocks_of(p, sequence);
  const int used = forward::locate(p.rows, sequence, p.batch).used;
  const int slot = ptx::thread_index() / wide, lane = ptx::thread_index() - slot * wide;
  const int kinds = p.extremes ? 3 : 1;
  float left = 0;
  for (int first = 0; first < p.columns; first += wide) {
    const int column = first + lane;
    float sum = 0, smallest = infinity, largest = -infinity;
    if (column < p.columns) {
#pragma unroll 4
      for (int n = blocks.begin + slot; n < blocks.end; n += mean_slots) {
        const float* found = p.found + (static_cast<int64_t>(n) * p.heads + head) * kinds * p.columns + column;
        sum += found[0];
        if (!p.extremes) continue;
        smallest = ptx::minimum(smallest, found[p.columns]);
        largest = ptx::maximum(largest, found[2 * p.columns]);
      }
    }
    shared.found[0][slot][lane] = sum;
    shared.found[1][slot][lane] = smallest;
    shared.found[2][slot][lane] = largest;
    ptx::sync_block();
    if (slot == 0 && column < p.columns) {
      sum = 0;
      for (int s = 0; s < mean_slots; ++s) {
        sum += shared.found[0][s][lane];
        smallest = ptx::minimum(smallest, shared.found[1][s][lane]);
        largest = ptx::maximum(largest, shared.found[2][s][lane]);
      }
      const float mean = mean_of(sum, used);
      p.mean[sequence * p.mean_batch + head * p.mean_head + column] = mean;
      const float up = ptx::magnitude(largest - mean), down = ptx::magnitude(smallest - mean);
      if (finite(up)) left = ptx::maximum(left, up);
      if (finite(down)) left = ptx::maximum(left, down);
    }
    ptx::sync_block();
  }
  if (!p.extremes) return;
  left = block_maximum(left, &shared.found[0][0][0]);
  if (ptx::thread_index() == 0) p.largest[ptx::block_index()] = left;
}

/// The scale of a head of a sequence, or of everything.
TANDEM_DEVICE void combine_scales(const CombineParams& p, CombineShared& shared) {
  const int sequence = p.all_heads ? 0 : ptx::block_index() / p.heads;
  const int head = p.all_heads ? 0 : ptx::block_index() - sequence * p.heads;
  float largest = 0;
  if (p.given.data != nullptr) {
    largest = p.given.data[sequence * p.given.batch + head * p.given.head];
  } else {
    Range range{0, p.blocks.per_head * p.heads};
    if (!p.all_heads) range = blocks_of(p, sequence);
    const int stride = p.all_heads ? 1 : p.heads;
#pragma unroll 4
    for (int64_t n = range.begin + ptx::thread_index(); n < range.end; n += ptx::block_threads())
      largest = ptx::maximum(largest, p.found[n * stride + head]);
    largest = block_maximum(largest, &shared.found[0][0][0]) * p.norm;
  }
  if (ptx::thread_index() == 0)
    p.scales.data[sequence * p.scales.batch + head * p.scales.head] = scale_of(largest, p.limit, false);
}

TANDEM_DEVICE void combine(const CombineParams& p) {
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  CombineShared& shared = ptx::dynamic_shared<CombineShared>();
  if (p.mean != nullptr)
    combine_columns(p, shared);
  else
    combine_scales(p, shared);
}

}  // namespace tandem::internal::sm90::quantize
