// What the forward kernel is given at run time: one struct, passed by value, for host, GPU and emulator.
#pragma once

#include "backends/sm90/ptx/types.hpp"
#include "common/mask.hpp"
#include "common/tile_order.hpp"

namespace tandem::internal::sm90::forward {

/// Size of the row dimension of a ragged tensor map; a sequence of n rows begins at row ragged_rows - n.
constexpr int32_t ragged_rows = 1 << 30;

/// How the rows of one side (query and output, or key and value) are found. Tensor maps are five-dimensional: (column,
/// row, head, batch, 1) for plain dense tensors. Where sequences begin or end inside the tensor ("ragged": packed, or
/// with used lengths) the last two dimensions place a window of the sequence's own rows, so that TMA treats whatever
/// lies behind its last row as out of bounds: zeros on loads, nothing on stores. See ragged_map() in tensor_maps.cpp.
struct Rows {
  const int32_t* cumulative;  // batch + 1 values of a packed tensor, else null
  const int32_t* used;        // batch values, else null
  int32_t total;              // rows of a packed tensor: no value is taken beyond it
  int32_t padded;             // rows of each sequence of a dense tensor
  int32_t pitch;              // rows from one sequence to the next in memory, dense and ragged
  bool ragged;
};

struct alignas(64) Params {
  ptx::TensorMap query, key, value, out;
  float* lse;                                                 // null: not wanted
  int64_t lse_batch_stride, lse_head_stride, lse_row_stride;  // in elements
  const float* sinks;                                         // (query_heads), null: none
  int32_t* tile_counter;  // dynamic schedule: 0 on entry; null: static, tiles in strides of the grid
  Rows query_rows, key_rows;
  int32_t batch, query_heads, group;  // group: query heads of one key head
  int32_t diagonal;                   // of every sequence, if has_diagonal; else its keys - queries
  bool has_diagonal;
  bool scan;  // tiles are found by walking over the sequences' lengths
  Window window;
  TileOrder order;   // of a sequence's tiles, or of all tiles when dense
  int32_t tiles;     // dense: their number
  float scale_log2;  // softmax scale * log2(e); never 0
};

constexpr int max_consumers = 4;  // warpgroups

/// What the producer tells the consumers of a tile, through shared memory.
struct alignas(16) Tile {
  int32_t row;  // first query row, counted from the sequence's start; negative: no more tiles
  int32_t head, batch;
  int32_t queries;  // rows of the sequence that count; those up to `rows` get zeros
  int32_t rows;
  int32_t keys;
  int32_t diagonal;
  int32_t lse_row;  // rows of a packed LSE before this sequence
  // Coordinates of the output's tensor map: the row of the sequence's row 0, and the last two.
  int32_t map_row, map_batch, map_wrap;
  int32_t unused;
  Range visit;                // key blocks that are loaded
  Range own[max_consumers];   // of these, what each consumer's rows see: never empty
  Range full[max_consumers];  // of these, what needs no mask
};
static_assert(sizeof(Tile) == 128);

/// The order in which the 8-bit forward and the backward's kernel of dQ take the key blocks of a tile. Ascending, under
/// a causal mask without a left edge, most rows see all of their first block, and not a single key of it: what it tells
/// of the row's scores (math/softmax_fp8.cuh) then holds for the others. (A window with both edges has partial blocks
/// at either end.) Descending, consumers of which one sees more blocks than the others end a tile together.
template <bool ascending>
constexpr int32_t walk_step = ascending ? 1 : -1;
template <bool ascending>
TANDEM_SHARED_FUNCTION constexpr int32_t walk_begin(const Range& blocks) {
  return ascending ? blocks.begin : blocks.end - 1;
}
/// The block behind the last one.
template <bool ascending>
TANDEM_SHARED_FUNCTION constexpr int32_t walk_end(const Range& blocks) {
  return ascending ? blocks.end : blocks.begin - 1;
}

}  // namespace tandem::internal::sm90::forward
