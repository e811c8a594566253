// The consumers' role in 8-bit attention (FA-3 Algorithm 2): scores from e4m3 or int8 queries and keys, weights in e4m3
// as the tensor cores leave them (values are packed to suit), and now and then the promotion of O to float32 sums.
#pragma once

#include <type_traits>

#include "backends/sm90/forward/consumer_base.cuh"
#include "backends/sm90/forward_fp8/epilogue.cuh"
#include "backends/sm90/forward_fp8/promotion.cuh"
#include "backends/sm90/forward_fp8/shared.cuh"
#include "backends/sm90/math/softmax_fp8.cuh"

namespace tandem::internal::sm90::forward_fp8 {

using forward::No;
using forward::Yes;

template <Config config>
class Consumer : public forward::ConsumerBase<Consumer<config>, config, Shared<config>> {
  using Base = forward::ConsumerBase<Consumer<config>, config, Shared<config>>;
  friend Base;
  using Element = typename ElementOf<config.dtype>::type;
  using Score = typename ElementOf<config.dtype>::Score;
  using QueryLayout = ChunkLayout<config.head_dim, 1>;  // of queries and keys
  using RowSoftmax = SoftmaxFp8<Score, config.tile_key>;

  static_assert(config.bodies == 1 || config.bodies == 2 || config.bodies == 4, "see Config::bodies");

 public:
  TANDEM_DEVICE Consumer(Shared<config>& shared, const Params& params, int warpgroup)
      : Base(shared, params, warpgroup), fp8_params_(params) {}

 private:
  using Base::block_;
  using Base::consumer_;
  using Base::end_;
  using Base::key_;
  using Base::lane_;
  using Base::query_;
  using Base::shared_;
  using Base::value_;
  using Base::warp_;

  TANDEM_DEVICE void before_tile(const Tile&) {
    promoted_ = false;
    promote_at_ = block_ + fp8_params_.promote_every * Base::step_to_next;
  }
  /// S and P of the first block.
  TANDEM_DEVICE void first_block(const Tile& tile) {
    issue_first_scores();
    await_first_scores();
    first_weights(tile);
  }
  TANDEM_DEVICE void issue_first_scores() {
    ptx::wait(shared_.query_full[consumer_][query_.stage], query_.parity);
    ptx::wait(shared_.key_full[key_.stage], key_.parity);
    clear_scores();
    ptx::wgmma_fence(scores_);
    issue_scores(key_descriptor(key_.stage), query_descriptor());
  }
  TANDEM_DEVICE void await_first_scores() { ptx::wgmma_wait<0>(scores_); }
  TANDEM_DEVICE void first_weights(const Tile& tile) {
    query_scale_ = shared_.tile_scales[this->current_].query[consumer_];
    take_scales(key_.stage);
    this->release_key();
    clear_output();
    if (this->needs_mask(block_)) this->mask(scores_, tile, block_, softmax_.masked());
    softmax_.first(scores_, weights_);
    block_ += Base::step_to_next;
  }
  /// O of the last block.
  TANDEM_DEVICE void last_output() {
    issue_last_output();
    await_last_output<0>();
  }
  TANDEM_DEVICE void issue_last_output() {
    const int stage = key_.stage ^ 1;
    ptx::wait(shared_.value_full[stage], key_.parity ^ stage);
    ptx::wgmma_fence(output_, weights_);
    issue_output(value_descriptor(stage), No{});
  }
  /// Of the groups in flight all but the `behind` last are waited for.
  template <int behind>
  TANDEM_DEVICE void await_last_output() {
    softmax_.finish();  // beside the products
    ptx::wgmma_wait<behind>(output_, weights_);
    if (lane_ == 0) ptx::arrive(shared_.value_empty[key_.stage ^ 1]);
    value_ = key_;
  }
  TANDEM_DEVICE void after_tile(const Tile& tile) {
    if constexpr (config.promotes) {
      if (promoted_) promotion().add_to(output_);
    }
    Epilogue<config>{shared_, fp8_params_, tile, shared_.tile_scales[this->current_], consumer_, warp_, lane_}.store(
        output_, softmax_);
  }

  /// Until block `end`, with promotions between: the loop itself counts nothing else.
  template <class Masked>
  TANDEM_DEVICE void steps(const Tile& tile, int end, Masked masked) {
    while (this->before(block_, end)) {
      int until = end;
      if (config.promotes && this->before(promote_at_, end)) until = promote_at_ + Base::step_to_next;
      for (; this->before(block_, until); block_ += Base::step_to_next) {
        if constexpr (config.bodies == 2)
          step(tile, key_.stage, masked);
        else if (key_.stage == 0)
          step(tile, Stage<0>{}, masked);
        else
          step(tile, Stage<1>{}, masked);
      }
      if constexpr (config.promotes) promote_if_due();
    }
  }
  template <class StageNumber, class Masked>
  TANDEM_DEVICE void step(const Tile& tile, StageNumber stage, Masked) {
    issue_step(stage);
    if constexpr (Masked::value) this->mask(scores_, tile, block_, softmax_.masked());
    softmax_.next(scores_, weights_, Rescale{*this});
  }
  /// The same by one body.
  TANDEM_DEVICE void steps_in_one_body(const Tile& tile) {
    while (this->before(block_, end_)) {
      issue_step(key_.stage);
      if (this->needs_mask(block_)) this->mask(scores_, tile, block_, softmax_.masked());
      softmax_.next(scores_, weights_, Rescale{*this});
      block_ += Base::step_to_next;
      if constexpr (config.promotes) promote_if_due();
    }
  }
  /// What the softmax does to sums when their reference moves.
  struct Rescale {
    Consumer& consumer;
    TANDEM_DEVICE void operator()(float factor0, float factor1) const {
      rescale(consumer.output_, factor0, factor1);
      if constexpr (config.promotes) {
        if (consumer.promoted_) consumer.promotion().scale(factor0, factor1);
      }
    }
  };
  /// A stage's number as a type.
  template <int number>
  using Stage = std::integral_constant<int, number>;

  template <class StageNumber>
  TANDEM_DEVICE void issue_step(StageNumber stage) {
    if constexpr (config.output_first)
      output_and_scores(stage);
    else
      scores_and_output(stage);
  }
  /// S of this block, then O of the one before, whose values are in the other stage (Algorithm 2, lines 8 to 14).
  template <class StageNumber>
  TANDEM_DEVICE void scores_and_output(StageNumber stage) {
    await_key(stage);
    this->wait_turn();
    clear_scores();
    ptx::wgmma_fence(scores_, output_, weights_);
    issue_scores(key_descriptor(stage), query_descriptor());
    await_value(stage);
    ptx::wgmma_fence();
    if constexpr (config.late_turn)
      issue_output(value_descriptor(stage ^ 1), No{});
    else
      issue_output(value_descriptor(stage ^ 1), Yes{});
    if (fp8_params_.scales_by_block) take_scales(stage);
    ptx::wgmma_wait<1>(scores_);
    free_key(stage);
    ptx::wgmma_wait<0>(output_, weights_);
    if constexpr (config.late_turn) this->give_turn();
    free_value(stage);
  }
  /// The same with O first: the next turn begins as soon as S is issued.
  template <class StageNumber>
  TANDEM_DEVICE void output_and_scores(StageNumber stage) {
    await_value(stage);
    this->wait_turn();
    clear_scores();
    ptx::wgmma_fence(scores_, output_, weights_);
    issue_output(value_descriptor(stage ^ 1), No{});
    await_key(stage);
    ptx::wgmma_fence();
    issue_scores(key_descriptor(stage), query_descriptor());
    this->give_turn();
    if (fp8_params_.scales_by_block) take_scales(stage);
    ptx::wgmma_wait<1>(output_, weights_);
    free_value(stage);
    ptx::wgmma_wait<0>(scores_);
    free_key(stage);
  }

  // With two stages the position of values, one block behind, follows from that of keys; the two agree between tiles.
  static_assert(config.stages == 2);
  template <class StageNumber>
  TANDEM_DEVICE void await_key(StageNumber stage) {
    ptx::wait(shared_.key_full[stage], key_.parity);
  }
  template <class StageNumber>
  TANDEM_DEVICE void await_value(StageNumber stage) {
    ptx::wait(shared_.value_full[stage ^ 1], key_.parity ^ stage ^ 1);
  }
  template <class StageNumber>
  TANDEM_DEVICE void free_key(StageNumber stage) {
    if (lane_ == 0) ptx::arrive(shared_.key_empty[stage]);
  }
  /// And the step's end.
  template <class StageNumber>
  TANDEM_DEVICE void free_value(StageNumber stage) {
    if (lane_ == 0) ptx::arrive(shared_.value_empty[stage ^ 1]);
    key_.stage = stage ^ 1;
    key_.parity ^= stage;
  }

  /// The scales of the block whose keys have landed; one for all lanes, in uniform registers. Never 0, so that masked
  /// scores stay infinite.
  TANDEM_DEVICE void take_scales(int stage) {
    const BlockScales block = shared_.block_scales[stage];
    ptx::sync_warp();  // one lane releases the stage for all
    const float scale = ptx::multiply_add(query_scale_, block.key, fp8_params_.least_scale);
    softmax_.set_scales(ptx::as_float(ptx::uniform(ptx::as_int(scale))), block.value_log2, block.value_inverse);
  }

  /// S = Q K^T for the block in the ring's current stage; both operands from shared memory ("SS").
  TANDEM_DEVICE void issue_scores(ptx::Descriptor key, ptx::Descriptor query) {
#pragma unroll
    for (int k = 0; k < config.head_dim / 32; ++k)
      ptx::wgmma<Element>(scores_, ptx::advance(query, QueryLayout::step_offset(64, k)),
                          ptx::advance(key, QueryLayout::step_offset(config.tile_key, k)),
                          RowSoftmax::origin != 0 || k != 0);
    ptx::wgmma_commit();
  }
  /// O += P V; P from registers ("RS").
  template <class GivesTurn>
  TANDEM_DEVICE void issue_output(ptx::Descriptor value, GivesTurn) {
#pragma unroll
    for (int k = 0; k < config.tile_key / 32; ++k) {
      // Handing over before the last product lets the other warpgroup's first one follow without a gap.
      if (GivesTurn::value && k == config.tile_key / 32 - 1) this->give_turn();
      ptx::wgmma<e4m3>(output_, weights_[k], ptx::advance(value, k * 32 * config.head_dim), true);
    }
    ptx::wgmma_commit();
  }

  TANDEM_DEVICE ptx::Descriptor query_descriptor() const {
    return ptx::matrix<QueryLayout::swizzle>(shared_.query[consumer_][query_.stage], 16, QueryLayout::group_bytes);
  }
  TANDEM_DEVICE ptx::Descriptor key_descriptor(int stage) const {
    return ptx::matrix<QueryLayout::swizzle>(shared_.key[stage], 16, QueryLayout::group_bytes);
  }
  /// Packed values are core matrices of 8 channels by 16 keys already.
  TANDEM_DEVICE ptx::Descriptor value_descriptor(int stage) const {
    return ptx::matrix<ptx::Swizzle::none>(shared_.value[stage], 16 * config.head_dim, 128);
  }

  /// int8 sums start at a float's bits (math/softmax_fp8.cuh); float32 ones are cleared by their first product.
  TANDEM_DEVICE void clear_scores() {
    if constexpr (RowSoftmax::origin != 0) {
#pragma unroll
      for (int i = 0; i < config.tile_key / 2; ++i) scores_[i] = ptx::as_int(RowSoftmax::origin);
    }
  }
  TANDEM_DEVICE void clear_output() {
#pragma unroll
    for (int i = 0; i < config.head_dim / 2; ++i) output_[i] = 0;
  }

  TANDEM_DEVICE Promotion<config> promotion() { return {shared_.output[consumer_][warp_], lane_}; }
  TANDEM_DEVICE void promote_if_due() {
    if (this->before(promote_at_, block_) && this->before(block_, end_)) promote();
  }
  TANDEM_DEVICE void promote() {
    if (!promoted_) {
      Epilogue<config>::await_buffer(lane_);
      promotion().clear();
    }
    promotion().take(output_);
    promoted_ = true;
    promote_at_ = block_ + (fp8_params_.promote_every - 1) * Base::step_to_next;
  }

  const Params& fp8_params_;
  float query_scale_ = 1;
  int promote_at_ = 0;  // the block whose scores are the last ones before O is promoted again: its values come later
  bool promoted_ = false;
  RowSoftmax softmax_;
  typename RowSoftmax::Scores scores_;
  float output_[config.head_dim / 2];
  typename RowSoftmax::Weights weights_;
};

}  // namespace tandem::internal::sm90::forward_fp8
