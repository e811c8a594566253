// The consumers' role where no warpgroup could hold dK and dV (Division::gradients): one adds up dV, the other dK, both
// of the tile's 64 keys (FA-3 Algorithm 3, lines 10 to 15). Scores are computed transposed, so that each one's operand
// stays in registers: the first computes S^T = K Q^T, P^T and dV += P^T dO, the second dP^T = V dO^T, dS^T and
// dK += dS^T Q. Only P^T passes from one to the other, as the threads hold it. While one is in its arithmetic, the
// other has the tensor cores: the second follows the first, whose P it waits for.
//
// What bounds this kernel is reading shared memory, where a product of 64 by 64 takes as long as in the tensor cores.
// So each warpgroup keeps as many columns of its K or V in registers as there is room for.
#pragma once

#include "backends/sm90/backward/named_barriers.hpp"
#include "backends/sm90/backward/scheduler.cuh"
#include "backends/sm90/backward/scores.cuh"
#include "backends/sm90/backward/shared.cuh"
#include "backends/sm90/backward/staging.cuh"
#include "backends/sm90/tile/layout.hpp"

namespace tandem::internal::sm90::backward {

enum class Gradient { value, key };

template <Config config, Gradient gradient>
class GradientConsumer {
  using Element = typename Shared<config>::Element;
  using Layout = ChunkLayout<config.head_dim>;
  static constexpr int tile_query = config.tile_query, tile_key = config.tile_key(), head_dim = config.head_dim;
  static constexpr bool of_value = gradient == Gradient::value;
  static_assert(tile_key == 64);
  static constexpr int steps_of_scores = head_dim / 16;
  static constexpr int resident =
      head_dim > 192 ? steps_of_scores / 2 : steps_of_scores;  // of these, K or V in registers

 public:
  TANDEM_DEVICE GradientConsumer(Shared<config>& shared, const Params& params)
      : shared_(shared), params_(params), warp_((ptx::thread_index() >> 5) & 3), lane_(ptx::thread_index() & 31) {}

  TANDEM_DEVICE void run() {
    for (;; ++tile_) {
      ptx::wait(shared_.tile_full[tile_ % 2], static_cast<int>(tile_ / 2 & 1));
      if (ptx::uniform(tile().first_key) < 0) return;
      full_begin_ = ptx::uniform(tile().full.begin);
      full_end_ = ptx::uniform(tile().full.end);
#pragma unroll
      for (int i = 0; i < head_dim / 2; ++i) sum_[i] = 0;
      ptx::wait(of_value ? shared_.key_full : shared_.value_full, static_cast<int>(tile_ & 1));
      load_rows();
      Steps steps = Steps::of_warp(tile(), params_.group);
      if (steps.left() > 0) all_steps(steps);
      store();
      ptx::sync_warp();  // every lane has read the tile
      if (lane_ == 0) ptx::arrive(shared_.tile_empty[tile_ % 2]);
    }
  }

 private:
  /// The sum of a block's step and the scores of the next are in the tensor cores together; nothing is in flight where
  /// the loop turns.
  TANDEM_DEVICE void all_steps(Steps& steps) {
    await_scored(step_);
    ptx::wgmma_fence(scores_, rows_);
    issue_scores(step_);
    ptx::wgmma_wait<0>(scores_, rows_);
    form(steps.block());
    for (steps.next(); steps.left() > 0; steps.next()) {
      await_added(step_);
      ptx::wgmma_fence(operand_, sum_);
      issue_sum(step_);
      await_scored(step_ + 1);
      ptx::wgmma_fence(scores_, rows_);
      issue_scores(step_ + 1);
      ptx::wgmma_wait<1>(sum_, operand_);
      release_added(step_);
      step_ = ptx::uniform(step_ + 1);
      ptx::wgmma_wait<0>(scores_, rows_);
      form(steps.block());
    }
    await_added(step_);
    ptx::wgmma_fence(operand_, sum_);
    issue_sum(step_);
    ptx::wgmma_wait<0>(sum_, operand_);
    release_added(step_);
    ++step_;
  }

  TANDEM_DEVICE void load_rows() {
    const uint8_t* rows = reinterpret_cast<const uint8_t*>(of_value ? shared_.key : shared_.value);
#pragma unroll
    for (int k = 0; k < resident; ++k)
      ptx::load_matrices(
          rows + Layout::chunk_offset(tile_key, k / Layout::steps) +
              swizzled_offset(16 * warp_ + (lane_ & 15), k % Layout::steps * 2 + (lane_ >> 4), Layout::row_bytes),
          rows_[k][0], rows_[k][1], rows_[k][2], rows_[k][3]);
  }

  /// S^T = K Q^T (line 10), or dP^T = V dO^T (line 13).
  TANDEM_DEVICE void issue_scores(unsigned step) {
    const ptx::Descriptor a =
        ptx::uniform(ptx::matrix<Layout::swizzle>(of_value ? shared_.key : shared_.value, 16, Layout::group_bytes));
    const ptx::Descriptor b = ptx::uniform(ptx::matrix<Layout::swizzle>(
        of_value ? shared_.query[stage(step)] : shared_.grad_out[stage(step)], 16, Layout::group_bytes));
#pragma unroll
    for (int k = 0; k < resident; ++k)
      ptx::wgmma<Element>(scores_, rows_[k], ptx::advance(b, Layout::step_offset(tile_query, k)), k != 0);
#pragma unroll
    for (int k = resident; k < steps_of_scores; ++k)
      ptx::wgmma<Element>(scores_, ptx::advance(a, Layout::step_offset(tile_key, k)),
                          ptx::advance(b, Layout::step_offset(tile_query, k)), k != 0);
    ptx::wgmma_commit();
  }
  /// dV += P^T dO (line 12), or dK += dS^T Q (line 15).
  TANDEM_DEVICE void issue_sum(unsigned step) {
    const ptx::Descriptor b =
        ptx::uniform(ptx::matrix<Layout::swizzle>(of_value ? shared_.grad_out[stage(step)] : shared_.query[stage(step)],
                                                  tile_query * Layout::row_bytes, Layout::group_bytes));
#pragma unroll
    for (int k = 0; k < tile_query / 16; ++k)
      ptx::wgmma<Element, ptx::Major::MN>(sum_, operand_[k], ptx::advance(b, k * 16 * Layout::row_bytes), true);
    ptx::wgmma_commit();
  }

  /// The operand of this step's sum, from the scores.
  TANDEM_DEVICE void form(int block) {
    if constexpr (of_value)
      weigh(block);
    else
      differentiate();
    ptx::sync_warp();
    if (lane_ != 0) return;
    if constexpr (of_value) {
      ptx::arrive(shared_.query_empty[stage(step_)]);
      ptx::arrive(shared_.weights_full[stage(step_)]);
    } else {
      ptx::arrive(shared_.grad_out_empty[stage(step_)]);
      ptx::arrive(shared_.weights_empty[stage(step_)]);
    }
  }
  /// P = exp(S - LSE) (line 11), for the other warpgroup too.
  TANDEM_DEVICE void weigh(int block) {
    if (block < full_begin_ || block >= full_end_)
      hide_unseeing_queries(scores_, tile(), params_, tile().first_key + fragment_row(warp_, lane_), block * tile_query,
                            lane_);
    exponentials(scores_, shared_.lse[stage(step_)], params_.scale_log2, lane_);
#pragma unroll
    for (int i = 0; i < tile_query / 2; i += 2)
      operand_[i / 8][i / 2 % 4] = ptx::pack<Element>(scores_[i], scores_[i + 1]);
    ptx::wait(shared_.weights_empty[stage(step_)], parity(step_) ^ 1);
#pragma unroll
    for (int k = 0; k < tile_query / 16; ++k)
      shared_.weights[stage(step_)][k][32 * warp_ + lane_] = {
          {operand_[k][0], operand_[k][1], operand_[k][2], operand_[k][3]}};
  }
  /// dS = P * (dP - D) (line 14).
  TANDEM_DEVICE void differentiate() {
    const Pair* delta = reinterpret_cast<const Pair*>(shared_.delta[stage(step_)]) + (lane_ & 3);
    ptx::wait(shared_.weights_full[stage(step_)], parity(step_));
#pragma unroll
    for (int k = 0; k < tile_query / 16; ++k) {
      const Fragment weights = shared_.weights[stage(step_)][k][32 * warp_ + lane_];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = 8 * k + 2 * j;
        const Pair d = delta[4 * (i / 4)];
        float low, high;
        ptx::unpack<Element>(weights.words[j], low, high);
        operand_[k][j] = ptx::pack<Element>(low * (scores_[i] - d.x), high * (scores_[i + 1] - d.y));
      }
    }
  }

  /// dV leaves through K's memory and dK through V's, each of which its warpgroup alone reads.
  TANDEM_DEVICE void store() {
    Element* staged = of_value ? shared_.key : shared_.value;
    constexpr int barrier = gradient_barrier(of_value);
    ptx::barrier_sync(barrier, 128);
    stage_rows<Element, Layout>(sum_, staged, of_value ? 1 : params_.scale, tile().keys - tile().first_key, warp_,
                                lane_);
    ptx::barrier_sync(barrier, 128);
    if (warp_ != 0 || lane_ != 0) return;
#pragma unroll
    for (int c = 0; c < Layout::chunks; ++c)
      ptx::tma_store(of_value ? params_.grad_value : params_.grad_key,
                     reinterpret_cast<const uint8_t*>(staged) + Layout::chunk_offset(tile_key, c),
                     c * Layout::chunk_columns, tile().out_row + tile().first_key, tile().head, tile().out_batch,
                     tile().key_wrap);
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();
    ptx::arrive(of_value ? shared_.key_empty : shared_.value_empty);
  }

  // The block that scores are computed with, and the one that is added up.
  TANDEM_DEVICE void await_scored(unsigned step) {
    ptx::wait(of_value ? shared_.query_full[stage(step)] : shared_.grad_out_full[stage(step)], parity(step));
  }
  TANDEM_DEVICE void await_added(unsigned step) {
    ptx::wait(of_value ? shared_.grad_out_full[stage(step)] : shared_.query_full[stage(step)], parity(step));
  }
  TANDEM_DEVICE void release_added(unsigned step) {
    if (lane_ == 0) ptx::arrive(of_value ? shared_.grad_out_empty[stage(step)] : shared_.query_empty[stage(step)]);
  }

  TANDEM_DEVICE const Tile& tile() const { return shared_.tile[tile_ % 2]; }
  static TANDEM_DEVICE unsigned stage(unsigned step) { return step % Config::stages; }
  static TANDEM_DEVICE int parity(unsigned step) { return static_cast<int>(step / Config::stages & 1); }

  Shared<config>& shared_;
  const Params& params_;
  const int warp_, lane_;
  unsigned tile_ = 0;                  // their number so far
  unsigned step_ = 0;                  // of all tiles
  int full_begin_ = 0, full_end_ = 0;  // Tile::full
  float sum_[head_dim / 2], scores_[tile_query / 2];
  uint32_t operand_[tile_query / 16][4];  // P^T or dS^T
  uint32_t rows_[resident][4];            // of K or V
};

}  // namespace tandem::internal::sm90::backward
