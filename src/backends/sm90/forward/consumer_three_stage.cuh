// The consumers' loop with three stages (FA-3 appendix B.3, Algorithm 4): the softmax of a block runs beside both QK of
// the next block and PV of the one before. Its price is a second S and P in registers, and so fewer keys a tile; the
// paper found it slower than two stages. Of the paper's ablation: no kernel of the library is compiled with it.
#pragma once

#include "backends/sm90/forward/consumer.cuh"

namespace tandem::internal::sm90::forward {

template <Config config>
TANDEM_DEVICE void Consumer<config>::three_stage_tile(const Tile& tile) {
  Scores other_scores;
  Weights other_weights;
  skip(skipped_before_);
  first_block(tile);
  if (block_ < end_) {
    last_output(weights_);
    return skip(skipped_behind_);
  }
  // S of the second block: the loop begins with P of one block and S of the next.
  ptx::wait(shared_.key_full[key_.stage], key_.parity);
  wait_turn();
  ptx::wgmma_fence(scores_);
  issue_scores(scores_, key_descriptor(), query_descriptor());
  give_turn();
  ptx::wgmma_wait<0>(scores_);
  release_key();
  if (block_ == end_) release_query();
  // Two steps a turn of the loop, so that the arrays change roles without a copy (Algorithm 4 copies S).
  while (true) {
    if (block_ == end_) {
      three_stage_end(tile, scores_, weights_, other_weights);
      break;
    }
    three_stage_step(tile, scores_, other_scores, weights_, other_weights);
    if (block_ == end_) {
      three_stage_end(tile, other_scores, other_weights, weights_);
      break;
    }
    three_stage_step(tile, other_scores, scores_, other_weights, weights_);
  }
  skip(skipped_behind_);
}

/// Enters with S of the current block and P of the one before; leaves with S of the next and P of the current one. The
/// comments name Algorithm 2's lines, of which this is a rearrangement: the softmax is of the block before line 9's.
template <Config config>
TANDEM_DEVICE void Consumer<config>::three_stage_step(const Tile& tile, Scores& scores, Scores& next_scores,
                                                      Weights& weights, Weights& next_weights) {
  const ptx::Descriptor key = key_descriptor(), query = query_descriptor(), value = value_descriptor();
  ptx::wait(shared_.key_full[key_.stage], key_.parity);  // line 8
  wait_turn();
  ptx::wgmma_fence(next_scores, output_, weights);
  issue_scores(next_scores, key, query);                       // line 9
  ptx::wait(shared_.value_full[value_.stage], value_.parity);  // line 10
  ptx::wgmma_fence();
  issue_output(weights, value, Yes{});                // line 11, and the turn goes to the next warpgroup
  begin_softmax(tile, scores, next_weights);          // line 13, beside both products
  ptx::wgmma_wait<0>(next_scores, output_, weights);  // lines 12 and 14
  release_key();
  if (block_ - 1 == end_) release_query();
  release_value();
  finish_softmax(scores, next_weights);  // line 15
  --block_;
}

/// The last block: there is no further QK.
template <Config config>
TANDEM_DEVICE void Consumer<config>::three_stage_end(const Tile& tile, Scores& scores, Weights& weights,
                                                     Weights& next_weights) {
  ptx::wait(shared_.value_full[value_.stage], value_.parity);
  ptx::wgmma_fence(output_, weights);
  issue_output(weights, value_descriptor(), No{});
  begin_softmax(tile, scores, next_weights);
  ptx::wgmma_wait<0>(output_, weights);
  release_value();
  finish_softmax(scores, next_weights);
  last_output(next_weights);
}

/// The part that leaves O alone, and so may run beside a PV.
template <Config config>
TANDEM_DEVICE void Consumer<config>::begin_softmax(const Tile& tile, Scores& scores, Weights& weights) {
  if (needs_mask(block_)) mask(scores, tile, block_);
  if constexpr (config.row_maximum == RowMaximum::every_block)
    softmax_.update_in_place(scores);
  else
    softmax_.begin_next(scores, weights);
  await_next_value();
}
template <Config config>
TANDEM_DEVICE void Consumer<config>::finish_softmax(Scores& scores, Weights& weights) {
  if constexpr (config.row_maximum == RowMaximum::every_block)
    softmax_.finish_update(scores, weights, output_);
  else
    softmax_.finish_next(scores, weights, output_);
}

}  // namespace tandem::internal::sm90::forward
