// What the consumers of the 8-bit forward and of the backward's kernel of dQ share: the walk over tiles and blocks,
// releases, turns, the mask. A kernel's consumer derives from it and says what a block's step is. (The 16-bit
// forward's, forward/consumer.cuh, also runs without a producer and with other overlaps, and has its own.)
#pragma once

#include "backends/sm90/forward/named_barriers.hpp"
#include "backends/sm90/forward/params.hpp"
#include "backends/sm90/ptx/ptx.hpp"
#include "backends/sm90/tile/layout.hpp"
#include "backends/sm90/tile/ring.cuh"

namespace tandem::internal::sm90::forward {

struct Yes {
  static constexpr bool value = true;
};
struct No {
  static constexpr bool value = false;
};

/// `Derived` has before_tile(tile), first_block(tile), steps(tile, end, masked) (where config.bodies is 1,
/// steps_in_one_body(tile)), last_output() and after_tile(tile); with a second query buffer tiles overlap, and the
/// first block and the last output are parted into issue_first_scores(), await_first_scores(), first_weights(tile),
/// issue_last_output() and await_last_output<groups in flight behind it>().
template <class Derived, auto config, class SharedMemory>
class ConsumerBase {
 public:
  TANDEM_DEVICE ConsumerBase(SharedMemory& shared, const Params& params, int warpgroup)
      : shared_(shared),
        params_(params),
        consumer_(warpgroup),
        warp_((ptx::thread_index() >> 5) & 3),
        lane_(ptx::thread_index() & 31) {}

  TANDEM_DEVICE void run() {
    // The last consumer hands the first turn to the first one.
    if (config.pingpong && consumer_ == config.consumers - 1) ptx::barrier_arrive(turn_barrier(0), 256);
    if constexpr (config.query_buffers > 1)
      overlapped_tiles();
    else
      tiles();
    if (lane_ == 0) ptx::bulk_wait<0>();  // shared memory must outlive the stores that read it
  }

 protected:
  TANDEM_DEVICE void tiles() {
    while (take_tile()) {
      current_ = taken_;
      const Tile& tile = shared_.tile[current_];
      self().before_tile(tile);
      skip(skipped_before_);
      self().first_block(tile);
      all_steps(tile);
      self().last_output();
      skip(skipped_behind_);
      self().after_tile(tile);
      release_tile();
    }
  }
  TANDEM_DEVICE void overlapped_tiles() {
    if (!begin_tile()) return;
    self().await_first_scores();
    for (bool more = true; more;) {
      current_ = taken_;
      const Tile& tile = shared_.tile[current_];
      self().before_tile(tile);
      self().first_weights(tile);
      all_steps(tile);
      more = begin_next();
      self().after_tile(tile);
      release_tile();
      self().await_first_scores();  // here: ptxas wants nothing in flight where a loop begins anew
    }
  }
  TANDEM_DEVICE void release_tile() {
    ptx::sync_warp();  // every lane has read the tile
    if (lane_ == 0) ptx::arrive(shared_.tile_empty[current_]);
  }
  TANDEM_DEVICE Derived& self() { return static_cast<Derived&>(*this); }

  /// Waits for the next tile's description; false: there is none.
  TANDEM_DEVICE bool take_tile() {
    ptx::wait(shared_.tile_full[slot_.stage], slot_.parity);
    const Tile& tile = shared_.tile[slot_.stage];
    if (ptx::uniform(tile.row) < 0) return false;
    const Range own = tile.own[consumer_];
    const Range full = tile.full[consumer_];
    const int below = own.begin - tile.visit.begin, above = tile.visit.end - own.end;
    block_ = ptx::uniform(forward::walk_begin<config.ascending>(own));
    end_ = ptx::uniform(forward::walk_end<config.ascending>(own));
    skipped_before_ = ptx::uniform(config.ascending ? below : above);
    skipped_behind_ = ptx::uniform(config.ascending ? above : below);
    full_begin_ = ptx::uniform(forward::walk_begin<config.ascending>(full));
    full_end_ = ptx::uniform(forward::walk_end<config.ascending>(full));
    taken_ = slot_.stage;
    slot_.next();
    return true;
  }
  TANDEM_DEVICE bool needs_mask(int block) const { return before(block, full_begin_) || !before(block, full_end_); }
  static TANDEM_DEVICE bool before(int a, int b) { return config.ascending ? a < b : a > b; }

  /// Passes over blocks that none of this warpgroup's rows sees: it only releases their stages, in the order in which
  /// they are filled and once they have landed (an earlier arrival would count for the stage's former use), and lets
  /// its turns go by; values first, since whoever has the turn may wait for the next ones in the same stage.
  TANDEM_DEVICE void skip(int blocks) {
    for (; blocks > 0; --blocks) {
      ptx::wait(shared_.key_full[key_.stage], key_.parity);
      release_key();
      ptx::wait(shared_.value_full[value_.stage], value_.parity);
      release_value();
      wait_turn();
      give_turn();
    }
  }

  /// FA-3 Algorithm 2: S of the next block (QK) and O of this one (PV) are in the tensor cores together, and the
  /// softmax of the next runs while the other warpgroup has its turn. All blocks but the first.
  TANDEM_DEVICE void all_steps(const Tile& tile) {
    if constexpr (config.bodies == 1) {
      self().steps_in_one_body(tile);
    } else {
      // Masked blocks before the full ones, the full ones, masked ones behind: one loop body.
      int masked_until = full_begin_;
      while (true) {
        self().steps(tile, masked_until, Yes{});
        self().steps(tile, full_end_, No{});
        if (!before(block_, end_)) break;
        masked_until = end_;
      }
    }
    release_query();
  }
  /// S of the first block of the next tile. False: there is none.
  TANDEM_DEVICE bool begin_tile() {
    if (!take_tile()) return false;
    skip(skipped_before_);
    self().issue_first_scores();
    return true;
  }
  /// O of the tile's last block and, beside it and the tile's end, S of the next tile's first: the same overlap across
  /// tiles. False: there is no next one. (ptxas wants no branch between products in flight.)
  TANDEM_DEVICE bool begin_next() {
    const int behind = skipped_behind_;
    // Others may need this consumer's turns before they give back the slot of the last tile but one: of two slots that
    // is the one in which the next tile is described.
    const bool first_skips = config.tile_slots == 2 && behind > 0;
    if (first_skips) {
      self().last_output();
      skip(behind);
    }
    const bool more = take_tile();
    const int skipped = (first_skips ? 0 : behind) + (more ? skipped_before_ : 0);
    if (!first_skips && more && skipped == 0) {
      self().issue_last_output();
      self().issue_first_scores();
      self().template await_last_output<1>();
      return true;
    }
    if (!first_skips) self().last_output();
    skip(skipped);
    if (more) self().issue_first_scores();
    return more;
  }

  /// Hides the keys that a row doesn't see: a bit for each of this thread's columns, since eight bits become predicates
  /// by one instruction.
  template <class Score, int count>
  TANDEM_DEVICE void mask(Score (&scores)[count], const Tile& tile, int block, Score hidden) {
    const int row = tile.row + 64 * consumer_ + fragment_row(warp_, lane_);
    const int first_column = block * config.tile_key + fragment_column(lane_, 0);
    static_assert(count <= 64, "a row's columns have a bit each");
    uint32_t visible[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      Range seen{0, 0};
      if (row + 8 * r < tile.queries) seen = visible_keys(row + 8 * r, tile.keys, tile.diagonal, params_.window);
      visible[r] = columns_before(seen.end - first_column) & ~columns_before(seen.begin - first_column);
    }
#pragma unroll
    for (int i = 0; i < count; ++i)
      if ((visible[fragment_upper(i)] >> fragment_bit(i) & 1) == 0) scores[i] = hidden;
  }

  /// The bits of a thread's columns of one row that lie before `column`, relative to its first one.
  static TANDEM_DEVICE uint32_t columns_before(int column) {
    const int positive = greatest(column, 0);
    return ptx::low_bits(positive / 8 * 2 + least(positive % 8, 2));
  }

  // Releases are one arrival a warp; a stage is empty when all warps of all consumers have arrived.
  TANDEM_DEVICE void release_key() {
    if (lane_ == 0) ptx::arrive(shared_.key_empty[key_.stage]);
    key_.next();
  }
  TANDEM_DEVICE void release_value() {
    if (lane_ == 0) ptx::arrive(shared_.value_empty[value_.stage]);
    value_.next();
  }
  /// After the tile's last QK, so that the next tile's query arrives while this one ends.
  TANDEM_DEVICE void release_query() {
    if (lane_ == 0) ptx::arrive(shared_.query_empty[consumer_][query_.stage]);
    query_.next();
  }

  TANDEM_DEVICE void wait_turn() {
    if constexpr (config.pingpong) ptx::barrier_sync(turn_barrier(consumer_), 256);
  }
  TANDEM_DEVICE void give_turn() {
    if constexpr (config.pingpong)
      ptx::barrier_arrive(turn_barrier(consumer_ + 1 == config.consumers ? 0 : consumer_ + 1), 256);
  }

  SharedMemory& shared_;
  const Params& params_;
  const int consumer_, warp_, lane_;
  static constexpr int step_to_next = walk_step<config.ascending>;
  RingPosition<config.stages> key_;
  RingPosition<value_stages<config>()> value_;
  RingPosition<config.tile_slots> slot_;
  int taken_ = 0, current_ = 0;  // slots: of the tile that was taken last, of the one in work
  RingPosition<config.query_buffers> query_;
  int block_ = 0, end_ = 0, full_begin_ = 0, full_end_ = 0, skipped_before_ = 0, skipped_behind_ = 0;
};

}  // namespace tandem::internal::sm90::forward
