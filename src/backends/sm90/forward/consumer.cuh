// The consumers' role (FA-3 Algorithm 1, lines 11 to 25, with Algorithm 2's overlap): each warpgroup owns 64 query
// rows, keeps its scores, weights and output in registers, and takes turns at the tensor cores with the others.
#pragma once

#include "backends/sm90/forward/epilogue.cuh"
#include "backends/sm90/forward/inline_producer.cuh"
#include "backends/sm90/forward/named_barriers.hpp"
#include "backends/sm90/forward/scheduler.cuh"
#include "backends/sm90/forward/shared.cuh"
#include "backends/sm90/math/softmax.cuh"
#include "backends/sm90/tile/ring.cuh"

namespace tandem::internal::sm90::forward {

struct Yes {
  static constexpr bool value = true;
};
struct No {
  static constexpr bool value = false;
};

template <Config config>
class Consumer {
  using Element = typename Shared<config>::Element;
  using QueryLayout = ChunkLayout<config.head_dim>;  // of queries and keys
  using ValueLayout = ChunkLayout<config.value_dim>;
  using RowSoftmax = Softmax<Element, config.tile_key, config.value_dim>;
  using Scores = typename RowSoftmax::Scores;
  using Weights = typename RowSoftmax::Weights;

 public:
  TANDEM_DEVICE Consumer(Shared<config>& shared, const Params& params, int warpgroup)
      : shared_(shared),
        params_(params),
        consumer_(warpgroup),
        warp_((ptx::thread_index() >> 5) & 3),
        lane_(ptx::thread_index() & 31),
        loads_(shared, params, warpgroup == 0 && warp_ == 0),
        softmax_(params.scale_log2) {}

  TANDEM_DEVICE void run() {
    // The last consumer hands the first turn to the first one.
    if (config.pingpong && consumer_ == config.consumers - 1) ptx::barrier_arrive(turn_barrier(0), 256);
    while (true) {
      loads_.next_tile();
      ptx::wait(shared_.tile_full[slot_.stage], slot_.parity);
      const Tile& tile = shared_.tile[slot_.stage];
      if (ptx::uniform(tile.row) < 0) break;
      take_blocks(tile);
      if constexpr (config.overlap == Overlap::two_stage)
        overlapped_tile(tile);
      else if constexpr (config.overlap == Overlap::three_stage)
        three_stage_tile(tile);
      else
        sequential_tile(tile);
      softmax_.finish();
      Epilogue<config>{shared_, params_, tile, consumer_, warp_, lane_}.store(output_, softmax_);
      ptx::sync_warp();  // every lane has read the tile
      if (lane_ == 0) ptx::arrive(shared_.tile_empty[slot_.stage]);
      slot_.next();
    }
    if (warp_ == 0 && lane_ == 0) ptx::bulk_wait<0>();  // shared memory must outlive the stores that read it
  }

 private:
  TANDEM_DEVICE void take_blocks(const Tile& tile) {
    const Range own = tile.own[consumer_];
    block_ = ptx::uniform(own.end - 1);
    end_ = ptx::uniform(own.begin);
    skipped_before_ = ptx::uniform(tile.visit.end - own.end);
    skipped_behind_ = ptx::uniform(own.begin - tile.visit.begin);
    full_begin_ = ptx::uniform(tile.full[consumer_].begin);
    full_end_ = ptx::uniform(tile.full[consumer_].end);
  }
  TANDEM_DEVICE bool needs_mask(int block) const { return block >= full_end_ || block < full_begin_; }

  /// Passes over blocks that none of this warpgroup's rows sees: it only releases their stages, in the order in which
  /// they are filled and once they have landed (an earlier arrival would count for the stage's former use), and lets
  /// its turns go by.
  TANDEM_DEVICE void skip(int blocks) {
    for (; blocks > 0; --blocks) {
      loads_.next_block();
      ptx::wait(shared_.key_full[key_.stage], key_.parity);
      release_key();
      wait_turn();
      give_turn();
      ptx::wait(shared_.value_full[value_.stage], value_.parity);
      release_value();
    }
  }

  /// FA-3 Algorithm 2: S of the next block (QK) and O of this one (PV) are in the tensor cores together, and the
  /// softmax of the next runs while the other warpgroup has its turn.
  TANDEM_DEVICE void overlapped_tile(const Tile& tile) {
    skip(skipped_before_);
    first_block(tile);
    // Masked blocks before the full ones, the full ones, masked ones behind (a window's left edge): one loop body.
    int masked_until = full_end_;
    while (true) {
      for (; block_ >= masked_until; --block_) step(tile, Yes{});
      for (; block_ >= full_begin_; --block_) step(tile, No{});
      if (block_ < end_) break;
      masked_until = end_;
    }
    last_output(weights_);
    skip(skipped_behind_);
  }

  /// S and P of the first block, with nothing to overlap with yet.
  TANDEM_DEVICE void first_block(const Tile& tile) {
    loads_.next_block();
    ptx::wait(shared_.query_full[consumer_], query_parity_);
    ptx::wait(shared_.key_full[key_.stage], key_.parity);
    ptx::wgmma_fence(scores_);
    issue_scores(scores_, key_descriptor(), query_descriptor());
    ptx::wgmma_wait<0>(scores_);
    release_key();
    if (block_ == end_) release_query();
    clear_output();
    if (needs_mask(block_)) mask(scores_, tile, block_);
    softmax_.first(scores_, weights_, output_);
    --block_;
  }
  /// Between a softmax and the wait for the PV that it should run beside: left alone, ptxas puts that wait first (all
  /// of the softmax, seen in its output); it moves no arithmetic past the loop that this wait is.
  TANDEM_DEVICE void await_next_value() {
    static_assert(config.stages > 1, "this block's values still fill the only stage");
    RingPosition<config.stages> next = value_;
    next.next();
    ptx::wait(shared_.value_full[next.stage], next.parity);
  }
  /// O of the last block, with nothing to overlap with any more.
  TANDEM_DEVICE void last_output(Weights& weights) {
    ptx::wait(shared_.value_full[value_.stage], value_.parity);
    ptx::wgmma_fence(output_, weights);
    issue_output(weights, value_descriptor(), No{});
    ptx::wgmma_wait<0>(output_, weights);
    release_value();
  }

  template <class Masked>
  TANDEM_DEVICE void step(const Tile& tile, Masked) {
    loads_.next_block();
    const ptx::Descriptor key = key_descriptor(), query = query_descriptor(), value = value_descriptor();
    ptx::wait(shared_.key_full[key_.stage], key_.parity);  // line 8
    wait_turn();
    ptx::wgmma_fence(scores_, output_, weights_);
    issue_scores(scores_, key, query);                           // line 9
    ptx::wait(shared_.value_full[value_.stage], value_.parity);  // line 10
    ptx::wgmma_fence();                                          // without it ptxas adds one of its own (C7519)
    issue_output(weights_, value, Yes{});                        // line 11, and the turn goes to the next warpgroup
    ptx::wgmma_wait<1>(scores_);                                 // line 12
    release_key();
    if (block_ == end_) release_query();
    if constexpr (Masked::value) mask(scores_, tile, block_);
    if constexpr (config.row_maximum == RowMaximum::every_block) {
      softmax_.update_in_place(scores_);  // line 13
      await_next_value();
    }
    ptx::wgmma_wait<0>(output_, weights_);  // line 14
    release_value();
    if constexpr (config.row_maximum == RowMaximum::every_block)
      softmax_.finish_update(scores_, weights_, output_);  // line 15
    else
      softmax_.next(scores_, weights_, output_);
  }

  // FA-3 Algorithm 4: consumer_three_stage.cuh.
  TANDEM_DEVICE void three_stage_tile(const Tile& tile);
  TANDEM_DEVICE void three_stage_step(const Tile& tile, Scores& scores, Scores& next_scores, Weights& weights,
                                      Weights& next_weights);
  TANDEM_DEVICE void three_stage_end(const Tile& tile, Scores& scores, Weights& weights, Weights& next_weights);
  TANDEM_DEVICE void begin_softmax(const Tile& tile, Scores& scores, Weights& weights);
  TANDEM_DEVICE void finish_softmax(Scores& scores, Weights& weights);

  /// FA-3 Algorithm 1: no overlap within the warpgroup; a turn covers PV of one block and QK of the next.
  TANDEM_DEVICE void sequential_tile(const Tile& tile) {
    ptx::wait(shared_.query_full[consumer_], query_parity_);
    clear_output();
    skip(skipped_before_);
    wait_turn();
    bool first = true;
    for (; block_ >= end_; --block_) {
      loads_.next_block();
      ptx::wait(shared_.key_full[key_.stage], key_.parity);  // line 16
      ptx::wgmma_fence(scores_);
      issue_scores(scores_, key_descriptor(), query_descriptor());  // line 17
      give_turn();
      ptx::wgmma_wait<0>(scores_);
      release_key();
      if (needs_mask(block_)) mask(scores_, tile, block_);
      if (first) {
        softmax_.first(scores_, weights_, output_);  // lines 18 and 19
      } else if constexpr (config.row_maximum == RowMaximum::every_block) {
        softmax_.update_in_place(scores_);
        softmax_.finish_update(scores_, weights_, output_);
      } else {
        softmax_.next(scores_, weights_, output_);
      }
      first = false;
      ptx::wait(shared_.value_full[value_.stage], value_.parity);  // line 20
      wait_turn();
      ptx::wgmma_fence(output_, weights_);
      issue_output(weights_, value_descriptor(), No{});  // line 21
      ptx::wgmma_wait<0>(output_, weights_);
      release_value();  // line 22
    }
    give_turn();
    release_query();
    skip(skipped_behind_);
  }

  /// S = Q K^T for the block in the ring's current stage; both operands from shared memory ("SS").
  TANDEM_DEVICE void issue_scores(Scores& scores, ptx::Descriptor key, ptx::Descriptor query) {
#pragma unroll
    for (int k = 0; k < config.head_dim / 16; ++k)
      ptx::wgmma<Element>(scores, ptx::advance(query, QueryLayout::step_offset(64, k)),
                          ptx::advance(key, QueryLayout::step_offset(config.tile_key, k)), k != 0);
    ptx::wgmma_commit();
  }
  /// O += P V; P from registers ("RS"), V as stored, keys along its rows.
  template <class GivesTurn>
  TANDEM_DEVICE void issue_output(Weights& weights, ptx::Descriptor value, GivesTurn) {
#pragma unroll
    for (int k = 0; k < config.tile_key / 16; ++k) {
      // Handing over before the last product lets the other warpgroup's first one follow without a gap.
      if (GivesTurn::value && k == config.tile_key / 16 - 1) give_turn();
      ptx::wgmma<Element, ptx::Major::MN>(output_, weights[k], ptx::advance(value, k * 16 * ValueLayout::row_bytes),
                                          true);
    }
    ptx::wgmma_commit();
  }

  TANDEM_DEVICE ptx::Descriptor query_descriptor() const {
    return in_uniform_register(
        ptx::matrix<QueryLayout::swizzle>(shared_.query[consumer_], 16, QueryLayout::group_bytes));
  }
  TANDEM_DEVICE ptx::Descriptor key_descriptor() const {
    return in_uniform_register(
        ptx::matrix<QueryLayout::swizzle>(shared_.key[key_.stage], 16, QueryLayout::group_bytes));
  }
  TANDEM_DEVICE ptx::Descriptor value_descriptor() const {
    return in_uniform_register(ptx::matrix<ValueLayout::swizzle>(
        shared_.value[value_.stage], config.tile_key * ValueLayout::row_bytes, ValueLayout::group_bytes));
  }
  /// At large head dims ptxas keeps descriptors in ordinary registers and moves them over in every step, unless told.
  static TANDEM_DEVICE ptx::Descriptor in_uniform_register(ptx::Descriptor descriptor) {
    return config.head_dim >= 192 ? ptx::uniform(descriptor) : descriptor;
  }

  /// Hides the keys that a row doesn't see. Columns are compared with each row's range, both relative to this thread's
  /// first column.
  TANDEM_DEVICE void mask(Scores& scores, const Tile& tile, int block) {
    const int row = tile.row + 64 * consumer_ + fragment_row(warp_, lane_);
    const int first_column = block * config.tile_key + fragment_column(lane_, 0);
    int begin[2], end[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      Range seen{0, 0};
      if (row + 8 * r < tile.queries) seen = visible_keys(row + 8 * r, tile.keys, tile.diagonal, params_.window);
      begin[r] = seen.begin - first_column;
      end[r] = seen.end - first_column;
    }
    const float hidden = softmax_.masked();
#pragma unroll
    for (int i = 0; i < config.tile_key / 2; ++i)
      if (fragment_column(0, i) >= end[fragment_upper(i)]) scores[i] = hidden;
    if (params_.window.left < Window::unlimited) {
#pragma unroll
      for (int i = 0; i < config.tile_key / 2; ++i)
        if (fragment_column(0, i) < begin[fragment_upper(i)]) scores[i] = hidden;
    }
  }

  TANDEM_DEVICE void clear_output() {
#pragma unroll
    for (int i = 0; i < config.value_dim / 2; ++i) output_[i] = 0;
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
    if (lane_ == 0) ptx::arrive(shared_.query_empty[consumer_]);
    query_parity_ ^= 1;
  }

  TANDEM_DEVICE void wait_turn() {
    if constexpr (config.pingpong) ptx::barrier_sync(turn_barrier(consumer_), 256);
  }
  TANDEM_DEVICE void give_turn() {
    if constexpr (config.pingpong)
      ptx::barrier_arrive(turn_barrier(consumer_ + 1 == config.consumers ? 0 : consumer_ + 1), 256);
  }

  Shared<config>& shared_;
  const Params& params_;
  const int consumer_, warp_, lane_;
  RingPosition<config.stages> key_, value_;
  RingPosition<2> slot_;
  int query_parity_ = 0;
  int block_ = 0, end_ = 0, full_begin_ = 0, full_end_ = 0, skipped_before_ = 0, skipped_behind_ = 0;
  [[no_unique_address]] Loads<config> loads_;
  RowSoftmax softmax_;
  Scores scores_;
  float output_[config.value_dim / 2];
  Weights weights_;
};

}  // namespace tandem::internal::sm90::forward
