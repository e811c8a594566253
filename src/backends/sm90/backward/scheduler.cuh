// Which keys a block works on next, and what its roles need to know of them.
#pragma once

#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/backward/visits.hpp"
#include "backends/sm90/forward/scheduler.cuh"
#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90::backward {

using forward::locate;
using forward::Position;
using forward::Sequence;

/// Tiles of keys. TileOrder begins with high numbers, but a head's tiles are launched from its first keys on, which
/// most queries see under a causal mask, unless `upwards`: tiles only wait for those that were launched before (Order).
struct KeySide {
  static TANDEM_DEVICE const Rows& rows(const Params& params) { return params.key_rows; }
  static TANDEM_DEVICE int32_t heads(const Params& params) { return params.key_heads; }
  static TANDEM_DEVICE int32_t tile(const Params& params, const TileOrder& order, int32_t tile) {
    return params.upwards ? tile : order.tiles_per_head - 1 - tile;
  }
};
/// Tiles of queries, the last of which see most keys.
struct QuerySide {
  static TANDEM_DEVICE const Rows& rows(const forward::Params& params) { return params.query_rows; }
  static TANDEM_DEVICE int32_t heads(const forward::Params& params) { return params.query_heads; }
  static TANDEM_DEVICE int32_t tile(const forward::Params&, const TileOrder&, int32_t tile) { return tile; }
};

/// Hands a block its tiles, in growing order. All lanes of a warp call it together and get the same. (The forward
/// pass's counts less and keeps more, which doesn't fit the registers of a producer here.)
template <int tile_rows, class Side, class Parameters>
class TileScheduler {
 public:
  TANDEM_DEVICE explicit TileScheduler(const Parameters& params) : params_(params) {}

  TANDEM_DEVICE Position next() {
    const int32_t index = next_index();
    if (params_.scan) return scanned(index);
    if (index >= params_.tiles) return {0, 0, -1};
    return position(params_.order, index, 0);
  }

 private:
  TANDEM_DEVICE Position position(const TileOrder& order, int32_t index, int32_t first_batch) {
    const TilePosition at = order.at(index);
    const int32_t heads = Side::heads(params_), batch = at.head / heads;
    return {first_batch + batch, at.head - batch * heads, Side::tile(params_, order, at.tile)};
  }
  TANDEM_DEVICE int32_t next_index() {
    if (index_ < 0) {
      index_ = ptx::block_index();
    } else if (params_.tile_counter == nullptr) {
      index_ += ptx::grid_size();
    } else {
      int32_t ticket = 0;
      if (lane() == 0) ticket = ptx::take_ticket(params_.tile_counter);
      index_ = ptx::grid_size() + ptx::shuffle(ticket, 0);
    }
    return index_;
  }

  /// The sequence that a tile of a packed tensor belongs to: walks over the lengths, 32 sequences at a time. The rows
  /// behind the last sequence count as one more.
  TANDEM_DEVICE Position scanned(int32_t index) {
    for (; first_sequence_ <= params_.batch; first_sequence_ += 32) {
      const int32_t batch = first_sequence_ + lane();
      int32_t tiles = 0;
      if (batch <= params_.batch)
        tiles = ceil_divide(locate(Side::rows(params_), batch, params_.batch).rows, tile_rows);
      int32_t sum = tiles * Side::heads(params_);
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int32_t left = ptx::shuffle_up(sum, distance);
        if (lane() >= distance) sum += left;
      }
      const uint32_t beyond = ptx::ballot(index - tiles_before_ < sum);
      if (beyond != 0) {
        const int found = ptx::first_set(beyond);
        tiles = ptx::shuffle(tiles, found);
        const int32_t skipped = tiles_before_ + ptx::shuffle(sum, found) - tiles * Side::heads(params_);
        const TileOrder order{tiles, Side::heads(params_), least(params_.order.section, Side::heads(params_)),
                              params_.order.longest_first};
        return position(order, index - skipped, first_sequence_ + found);
      }
      tiles_before_ += ptx::shuffle(sum, 31);
    }
    return {0, 0, -1};
  }

  static TANDEM_DEVICE int32_t lane() { return ptx::thread_index() & 31; }

  const Parameters& params_;
  int32_t index_ = -1;                             // of the last tile
  int32_t first_sequence_ = 0, tiles_before_ = 0;  // tiles of the sequences before that one
};

/// Fills in the block's tile.
template <int tile_query, int tile_key>
TANDEM_DEVICE void describe(const Params& params, Position at, Tile& tile) {
  tile.first_key = at.tile < 0 ? -1 : at.tile * tile_key;
  if (at.tile < 0) return;
  const Sequence key = locate(params.key_rows, at.batch, params.batch);
  // Behind the last sequence of packed keys: rows without queries, whose gradients are 0.
  Sequence query{0, 0, 0};
  if (at.batch < params.batch) query = locate(params.query_rows, at.batch, params.batch);
  tile.head = at.head;
  tile.queries = query.used;
  tile.keys = key.used;
  tile.diagonal = params.has_diagonal ? params.diagonal : key.used - query.used;
  tile.first_block = params.blocks.first(at.batch, query.offset, params.query_rows.cumulative != nullptr);
  const bool ragged_query = params.query_rows.ragged, ragged_key = params.key_rows.ragged;
  tile.query_row = ragged_query ? ragged_rows - query.used : 0;
  tile.query_batch = ragged_query ? query.offset + query.used : at.batch;
  tile.query_wrap = ragged_query ? ragged_rows : 0;
  tile.key_row = ragged_key ? ragged_rows - key.used : 0;
  tile.key_batch = ragged_key ? key.offset + key.used : at.batch;
  tile.key_wrap = ragged_key ? ragged_rows : 0;
  tile.out_row = ragged_key ? ragged_rows - key.rows : 0;
  tile.out_batch = ragged_key ? key.offset + key.rows : at.batch;
  const Scope scope{query.used, key.used, tile.diagonal, params.window};
  const KeyBlocks seen = visited_blocks<tile_query, tile_key>(scope, at.tile);
  tile.visit = seen.visit;
  tile.full = seen.full;
  tile.first = first_visited<tile_query, tile_key>(scope, at.tile, params.upwards);
  tile.direction = params.upwards ? 1 : -1;
}

/// The steps of a tile, for each role: all query heads of the group (so that dK and dV are summed over them in
/// registers), and for each the query blocks that see the keys, in the tile's direction.
class Steps {
 public:
  TANDEM_DEVICE Steps(Range visit, int32_t direction, int32_t head, int32_t group)
      : first_(direction > 0 ? visit.begin : visit.end - 1),
        behind_(direction > 0 ? visit.end : visit.begin - 1),
        direction_(direction),
        head_(head * group),
        block_(first_),
        left_(greatest(visit.end - visit.begin, 0) * group) {}
  /// For one thread.
  TANDEM_DEVICE Steps(const Tile& tile, int32_t group) : Steps(tile.visit, tile.direction, tile.head, group) {}
  /// For all lanes together: the counters are then known to be the same in all.
  static TANDEM_DEVICE Steps of_warp(const Tile& tile, int32_t group) {
    const Range visit{ptx::uniform(tile.visit.begin), ptx::uniform(tile.visit.end)};
    return {visit, ptx::uniform(tile.direction), ptx::uniform(tile.head), group};
  }
  /// The first block of each head, and the one behind the last.
  TANDEM_DEVICE int32_t first() const { return first_; }
  TANDEM_DEVICE int32_t behind() const { return behind_; }
  TANDEM_DEVICE int32_t direction() const { return direction_; }
  TANDEM_DEVICE int32_t left() const { return left_; }
  TANDEM_DEVICE int32_t block() const { return block_; }
  TANDEM_DEVICE int32_t head() const { return head_; }
  TANDEM_DEVICE void next() {
    --left_;
    block_ += direction_;
    if (block_ != behind_) return;
    block_ = first_;
    ++head_;
  }

 private:
  int32_t first_, behind_, direction_, head_, block_, left_;
};

}  // namespace tandem::internal::sm90::backward
