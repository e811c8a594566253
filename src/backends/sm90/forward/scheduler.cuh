// Which tile a block works on next. Run by the producer's first warp, all lanes together; everything is run-time values, so
// dense, packed and used lengths share one kernel.
#pragma once

#include "backends/sm90/forward/params.hpp"
#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90::forward {

/// Rows of one sequence on one side: where they start in memory, how many there are, how many count.
struct Sequence {
  int32_t offset, rows, used;
};

/// Lengths come from device memory unchecked: clamped, so that no bad value leads outside the tensors. Sequence number
/// `batch` of a packed tensor stands for the rows behind the last sequence: none of them counts.
TANDEM_DEVICE Sequence locate(const Rows& rows, int32_t batch, int32_t sequences) {
  Sequence sequence{batch * rows.pitch, rows.padded, rows.padded};
  if (rows.cumulative != nullptr) {
    const bool rest = batch >= sequences;
    sequence.offset = clamp(rows.cumulative[rest ? sequences : batch], 0, rows.total);
    const int32_t end = rest ? rows.total : clamp(rows.cumulative[batch + 1], sequence.offset, rows.total);
    sequence.rows = end - sequence.offset;
    sequence.used = rest ? 0 : sequence.rows;
  }
  if (rows.used != nullptr && batch < sequences) sequence.used = clamp(rows.used[batch], 0, sequence.rows);
  return sequence;
}

template <int tile_query>
class TileScheduler {
 public:
  TANDEM_DEVICE explicit TileScheduler(const Params& params)
      : params_(params), next_(ptx::block_index()), lane_(ptx::thread_index() & 31) {}

  /// The next tile; its row is negative when there is none.
  TANDEM_DEVICE Tile next() {
    const int32_t index = next_;
    // Asked for now and needed a tile later, so that the atomic's latency is hidden.
    next_ = index + ptx::grid_size();
    if (params_.tile_counter != nullptr) {
      if (lane_ == 0) next_ = ptx::grid_size() + ptx::atomic_add(params_.tile_counter, 1);
      next_ = ptx::shuffle(next_, 0);
    }
    return params_.scan ? scanned(index) : dense(index);
  }

 private:
  TANDEM_DEVICE Tile dense(int32_t index) const {
    if (index >= params_.tiles) return none();
    const TilePosition position = params_.order.at(index);
    const int32_t batch = position.head / params_.query_heads;
    return describe(batch, position.head - batch * params_.query_heads, position.tile);
  }

  /// Walks over the sequences, 32 at a time, until the index falls into one. Indices only grow, so each block walks once.
  TANDEM_DEVICE Tile scanned(int32_t index) {
    while (first_sequence_ <= params_.batch) {
      const int32_t batch = first_sequence_ + lane_;
      int32_t tiles = 0;
      if (batch < params_.batch || (batch == params_.batch && params_.query_rows.cumulative != nullptr))
        tiles = ceil_divide(locate(params_.query_rows, batch, params_.batch).rows, tile_query);
      int32_t sum = tiles * params_.query_heads;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int32_t left = ptx::shuffle_up(sum, distance);
        if (lane_ >= distance) sum += left;
      }
      const uint32_t beyond = ptx::ballot(index - tiles_before_ < sum);
      if (beyond != 0) {
        const int found = ptx::first_set(beyond);
        tiles = ptx::shuffle(tiles, found);
        const int32_t before = ptx::shuffle(sum, found) - tiles * params_.query_heads;
        const TileOrder order{tiles, params_.query_heads, least(params_.order.section, params_.query_heads),
                              params_.order.longest_first};
        const TilePosition position = order.at(index - tiles_before_ - before);
        return describe(first_sequence_ + found, position.head, position.tile);
      }
      tiles_before_ += ptx::shuffle(sum, 31);
      first_sequence_ += 32;
    }
    return none();
  }

  TANDEM_DEVICE Tile describe(int32_t batch, int32_t head, int32_t tile_index) const {
    const Sequence query = locate(params_.query_rows, batch, params_.batch);
    Tile tile;
    tile.row = tile_index * tile_query;
    tile.head = head;
    tile.batch = batch;
    tile.queries = query.used;
    tile.rows = query.rows;
    tile.keys = batch < params_.batch ? locate(params_.key_rows, batch, params_.batch).used : 0;
    tile.diagonal = params_.has_diagonal ? params_.diagonal : tile.keys - tile.queries;
    tile.lse_row = params_.query_rows.cumulative != nullptr ? query.offset : 0;
    const bool ragged = params_.query_rows.ragged;
    tile.map_row = ragged ? ragged_rows - query.rows : 0;
    tile.map_batch = ragged ? query.offset + query.rows : batch;
    tile.map_wrap = ragged ? ragged_rows : 0;
    tile.unused = 0;
    return tile;
  }

  static TANDEM_DEVICE Tile none() {
    Tile tile{};
    tile.row = -1;
    return tile;
  }

  const Params& params_;
  int32_t next_;
  int32_t lane_;
  int32_t first_sequence_ = 0;
  int32_t tiles_before_ = 0;  // of the sequences before first_sequence_
};

/// The key blocks of a tile. A tile whose rows see nothing still visits one block, wholly behind the last key: zeros from
/// TMA and a mask over all of it, so that no role needs a branch for it.
template <int tile_query, int tile_key>
TANDEM_DEVICE KeyBlocks blocks_of(const Tile& tile, Window window, int32_t first, int32_t rows) {
  const int32_t last = least(first + rows, tile.queries) - 1;
  KeyBlocks blocks{{0, 0}, {0, 0}};
  if (last >= first) blocks = key_blocks(first, last, tile.keys, tile.diagonal, window, tile_key);
  if (blocks.visit.end <= blocks.visit.begin) {
    const int32_t behind = ceil_divide(tile.keys, tile_key);
    blocks = {{behind, behind + 1}, {behind, behind}};
  }
  return blocks;
}

}  // namespace tandem::internal::sm90::forward
