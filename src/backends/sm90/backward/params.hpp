// What the backward kernels are given at run time, for host, GPU and emulator; and how their workspace is laid out.
#pragma once

#include "backends/sm90/forward/params.hpp"

namespace tandem::internal::sm90::backward {

using forward::ragged_rows;
using forward::Rows;

/// Workspace per query block of `tile` rows, blocks of one head one after the other: the dQ accumulator, and the rows'
/// LSE (log2 units, +inf for rows that don't count, so that their weights are 0) and D. A sequence's blocks start at a
/// number that needs no sum over the sequences before: a packed one starting at row r is number b's, at r / tile + b.
struct QueryBlocks {
  int32_t tile;
  int32_t per_sequence;  // dense
  int32_t per_head;      // of all sequences

  TANDEM_SHARED_FUNCTION constexpr int32_t first(int32_t batch, int32_t offset, bool packed) const {
    return packed ? offset / tile + batch : batch * per_sequence;
  }
};

struct alignas(64) Params {
  ptx::TensorMap query, grad_out, key, value, grad_key, grad_value;
  float* accumulator;       // dQ, [query head][block][part of a warpgroup][fragments]
  const float* statistics;  // [query head][block][LSE, D][row]
  int32_t* flags;           // [query head][block]: additions that were announced so far
  Rows query_rows, key_rows;
  QueryBlocks blocks;
  int32_t batch, key_heads, group;  // group: query heads of one key head
  int32_t diagonal;                 // of every sequence, if has_diagonal; else its keys - queries
  bool has_diagonal;
  bool deterministic;     // additions to dQ in a fixed order
  bool upwards;           // tiles from the last keys on, each from its first query block on; else both the other way
  bool scan;              // tiles are found by walking over the sequences' lengths
  int32_t* tile_counter;  // dynamic schedule: 0 on entry; null: tiles in strides of the grid
  Window window;
  TileOrder order;
  int32_t tiles;  // dense: their number
  float scale, scale_log2;
};

/// Which keys a block works on and which queries it visits: what its scheduler tells the other roles.
struct alignas(16) Tile {
  int32_t first_key;  // counted from the sequence's start; negative: no more tiles
  int32_t head;       // of keys
  int32_t queries, keys;
  int32_t diagonal;
  int32_t first_block;  // of the sequence's queries, in the workspace
  // Coordinates of the tensor maps: the row of a sequence's row 0, and the last two. Loads see the rows that count, the
  // stores of dK and dV all rows of the sequence.
  int32_t query_row, query_batch, query_wrap;
  int32_t key_row, key_batch, key_wrap;
  int32_t out_row, out_batch;
  Range visit;        // query blocks
  Range full;         // those that need no mask
  Range first;        // those to whose dQ no tile before this one adds
  int32_t direction;  // from block to block: 1 or -1
};

/// The kernel of dQ alone walks over tiles of queries, as the forward pass does; its `out` is dQ.
struct alignas(64) QueryParams : forward::Params {
  ptx::TensorMap grad_out;
  const float* statistics;  // as above
  QueryBlocks blocks;
  float scale;
};

constexpr const char *prepare_kernel = "backward_prepare", *finish_kernel = "backward_finish";

/// Element strides.
struct Layout {
  int64_t batch, row, head;
};

/// The kernel before: D = rowsum(dO * O), LSE to log2 units, flags cleared.
struct PrepareParams {
  static constexpr int threads = 256;
  const void *out, *grad_out;
  const float* lse;
  Layout out_layout, grad_out_layout, lse_layout;
  float* statistics;
  int32_t *flags, *tile_counter, *query_tile_counter;  // to be cleared; any may be null
  Rows query_rows;
  QueryBlocks blocks;
  int32_t batch, value_dim;
  bool is_bf16;
};

/// The kernel after that of Division::keys: dQ from the accumulator to 16 bits.
struct FinishParams {
  static constexpr int threads = 256;
  static constexpr int shared_bytes = 2 * 128 * (64 + 8);  // of FinishShared: the largest query block, d 64
  const float* accumulator;
  const int32_t* flags;  // 0: no tile visited the block
  void* grad_query;
  Layout layout;
  Rows query_rows;
  QueryBlocks blocks;
  int32_t batch, head_dim, accumulator_dim;
  float scale;
  bool is_bf16;
};

}  // namespace tandem::internal::sm90::backward
