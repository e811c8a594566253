// Which tile a block works on next. Run by one warp, all lanes together; everything is run-time
// values, so dense, packed and used lengths share one kernel.
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

/// Which tile of which head of which sequence; its number is negative where there is none.
struct Position {
  int32_t batch, head, tile;
};

template <int tile_query>
class TileScheduler {
 public:
  TANDEM_DEVICE explicit TileScheduler(const Params& params)
      : params_(params), next_(ptx::block_index()), lane_(ptx::thread_index() & 31) {}

  /// The next tile; its tile number is negative when there is none. All lanes get the same.
  TANDEM_DEVICE Position next() {
    if (params_.tile_counter == nullptr) {
      const int32_t index = next_;
      next_ += ptx::grid_size();
      return find(index);
    }
    // Lane 0 asked for this index a tile ago and asks for the next one now; nothing touches the answer until then, so
    // that the atomic's latency is hidden.
    const int32_t index = ptx::shuffle(next_, 0) + (first_ ? 0 : ptx::grid_size());
    first_ = false;
    if (lane_ == 0) next_ = ptx::take_ticket(params_.tile_counter);
    return find(index);
  }

 private:
  TANDEM_DEVICE Position find(int32_t index) { return params_.scan ? scanned(index) : dense(index); }

  TANDEM_DEVICE Position dense(int32_t index) const {
    if (index >= params_.tiles) return {0, 0, -1};
    const TilePosition position = params_.order.at(index);
    const int32_t batch = position.head / params_.query_heads;
    return {batch, position.head - batch * params_.query_heads, position.tile};
  }

  /// Walks over the sequences, 32 at a time, until the index falls into one. Indices only grow, so each block walks
  /// once; what the lanes have counted stays with them.
  TANDEM_DEVICE Position scanned(int32_t index) {
    for (; first_sequence_ <= params_.batch; first_sequence_ += 32) {
      if (!counted_) count();
      const uint32_t beyond = ptx::ballot(index < tiles_until_);
      if (beyond != 0) {
        const int found = ptx::first_set(beyond);
        const int32_t tiles = ptx::shuffle(tiles_, found);
        const int32_t before = ptx::shuffle(tiles_until_, found) - tiles * params_.query_heads;
        const TileOrder order{tiles, params_.query_heads, least(params_.order.section, params_.query_heads),
                              params_.order.longest_first};
        const TilePosition position = order.at(index - before);
        return {first_sequence_ + found, position.head, position.tile};
      }
      counted_ = false;
    }
    return {0, 0, -1};
  }

  /// The tiles of the lane's sequence, and of all up to it.
  TANDEM_DEVICE void count() {
    const int32_t batch = first_sequence_ + lane_, before = ptx::shuffle(tiles_until_, 31);
    tiles_ = 0;
    if (batch < params_.batch || (batch == params_.batch && params_.query_rows.cumulative != nullptr))
      tiles_ = ceil_divide(locate(params_.query_rows, batch, params_.batch).rows, tile_query);
    tiles_until_ = tiles_ * params_.query_heads;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int32_t left = ptx::shuffle_up(tiles_until_, distance);
      if (lane_ >= distance) tiles_until_ += left;
    }
    tiles_until_ += before;
    counted_ = true;
  }

  const Params& params_;
  int32_t next_;
  int32_t lane_;
  bool first_ = true;
  // The sequences that are being worked on, one a lane from first_sequence_ on.
  int32_t first_sequence_ = 0;
  bool counted_ = false;
  int32_t tiles_ = 0, tiles_until_ = 0;
};

/// The key blocks of a tile, and each consumer's part of them: it passes over blocks that none of its rows sees. A
/// consumer whose rows see nothing still takes one block, wholly masked, so that no role needs a branch for it; where
/// that holds for the whole tile, the block lies behind the last key, and TMA fills it with zeros.
template <int consumers, int tile_key>
TANDEM_DEVICE void plan_blocks(const Params& params, Tile& tile) {
  const auto blocks = [&](int32_t first, int32_t rows) {
    const int32_t last = least(first + rows, tile.queries) - 1;
    KeyBlocks none{{0, 0}, {0, 0}};
    return last < first ? none : key_blocks(first, last, tile.keys, tile.diagonal, params.window, tile_key);
  };
  Range visit = blocks(tile.row, 64 * consumers).visit;
  if (visit.end <= visit.begin) {
    const int32_t behind = ceil_divide(tile.keys, tile_key);
    visit = {behind, behind + 1};
  }
  tile.visit = visit;
#pragma unroll
  for (int w = 0; w < consumers; ++w) {
    const int32_t first = tile.row + 64 * w;
    const KeyBlocks seen = blocks(first, 64);
    Range own{clamp(seen.visit.begin, visit.begin, visit.end), clamp(seen.visit.end, visit.begin, visit.end)};
    if (own.end <= own.begin) own = {visit.begin, visit.begin + 1};
    // Rows between `queries` and `rows` get zeros, so that a consumer that has such takes the mask always. What it
    // computes beyond `rows` is never stored.
    Range full{own.begin, own.begin};
    if (first + 64 <= tile.queries || tile.queries == tile.rows) {
      full.end = clamp(seen.full.end, own.begin, own.end);
      full.begin = clamp(seen.full.begin, own.begin, full.end);
    }
    tile.own[w] = own;
    tile.full[w] = full;
  }
}

/// Fills in what consumers need of a tile, in shared memory.
template <int consumers, int tile_key>
TANDEM_DEVICE void describe(const Params& params, Position position, Tile& tile) {
  if (position.tile < 0) {
    tile.row = -1;
    return;
  }
  const Sequence query = locate(params.query_rows, position.batch, params.batch);
  const bool ragged = params.query_rows.ragged;
  tile.row = position.tile * 64 * consumers;
  tile.head = position.head;
  tile.batch = position.batch;
  tile.queries = query.used;
  tile.rows = query.rows;
  tile.keys = position.batch < params.batch ? locate(params.key_rows, position.batch, params.batch).used : 0;
  tile.diagonal = params.has_diagonal ? params.diagonal : tile.keys - tile.queries;
  tile.lse_row = params.query_rows.cumulative != nullptr ? query.offset : 0;
  tile.map_row = ragged ? ragged_rows - query.rows : 0;
  tile.map_batch = ragged ? query.offset + query.rows : position.batch;
  tile.map_wrap = ragged ? ragged_rows : 0;
  plan_blocks<consumers, tile_key>(params, tile);
}

}  // namespace tandem::internal::sm90::forward
