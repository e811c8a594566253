// The consumers' role (FA-3 Algorithm 3, lines 9 to 17): each warpgroup owns 64 keys. Scores are computed transposed,
// S^T = K Q^T, so that P^T and dS^T stay in registers as the first operand of dV += P^T dO and dK += dS^T Q; only dS
// goes through shared memory, for dQ^T = K^T dS^T, which sums over the keys of both warpgroups. dQ of a query block is
// computed one step late, so that neither warpgroup waits for the other's dS and the two can run out of phase.
#pragma once

#include "backends/sm90/backward/elements.cuh"
#include "backends/sm90/backward/named_barriers.hpp"
#include "backends/sm90/backward/scheduler.cuh"
#include "backends/sm90/backward/scores.cuh"
#include "backends/sm90/backward/shared.cuh"
#include "backends/sm90/backward/staging.cuh"
#include "backends/sm90/tile/layout.hpp"

namespace tandem::internal::sm90::backward {

template <Config config>
class Consumer {
  using Element = typename Shared<config>::Element;
  using Layout = ChunkLayout<config.head_dim>;         // of K, V, Q, dO
  using ScoreLayout = ChunkLayout<config.tile_key()>;  // of dS
  static constexpr int tile_query = config.tile_query, tile_key = config.tile_key(), head_dim = config.head_dim;

 public:
  TANDEM_DEVICE Consumer(Shared<config>& shared, const Params& params, int warpgroup)
      : shared_(shared),
        params_(params),
        consumer_(warpgroup),
        warp_((ptx::thread_index() >> 5) & 3),
        lane_(ptx::thread_index() & 31) {}

  TANDEM_DEVICE void run() {
    for (;; ++tile_) {
      ptx::wait(shared_.tile_full[tile_ % 2], static_cast<int>(tile_ / 2 & 1));
      if (ptx::uniform(tile().first_key) < 0) return;
      one_tile();
      ptx::sync_warp();  // every lane has read the tile
      release(shared_.tile_empty[tile_ % 2]);
    }
  }

 private:
  TANDEM_DEVICE void one_tile() {
#pragma unroll
    for (int i = 0; i < head_dim / 2; ++i) grad_key_[i] = grad_value_[i] = 0;
    const Steps steps = Steps::of_warp(tile(), params_.group);
    first_ = steps.first();
    behind_ = steps.behind();
    direction_ = steps.direction();
    full_begin_ = ptx::uniform(tile().full.begin);
    full_end_ = ptx::uniform(tile().full.end);
    block_ = first_;
    last_ = step_ + static_cast<unsigned>(steps.left());
    ptx::wait(shared_.key_full, keys_parity());
    unsigned slot = step_ + 2 * tile_;  // two for dK and dV of each tile before
    if (step_ == last_) {
      ptx::wait(shared_.value_full, keys_parity());
      release(shared_.value_empty);
      stage_keys(grad_value_, 1, slot++);
    } else {
      all_steps();
      slot = step_ - 1 + 2 * tile_;
      stage_keys(grad_value_, 1, slot++);
      wait_grad_scores();
      ptx::wgmma_fence(grad_query_);
      issue_grad_query();
      ptx::wgmma_wait<0>(grad_query_);
      release_grad_scores();
      store_grad_query(slot);
      ptx::fence_proxy_async();
      ptx::sync_warp();
      release_slot(slot++);
    }
    release(shared_.key_empty);
    stage_keys(grad_key_, params_.scale, slot);
  }

  TANDEM_DEVICE void all_steps() {
    ptx::wait(shared_.query_full[stage(step_)], parity(step_));
    ptx::wgmma_fence(scores_);
    issue_scores(step_);
    ptx::wait(shared_.value_full, keys_parity());
    if (config.turns && consumer_ == 1) give_turn();
    weigh();
    if (last_ - step_ == 1) {
      step<false, false>();
    } else {
      step<false, true>();
      while (last_ - step_ > 1) step<true, true>();
      step<true, false>();
    }
  }

  /// One query block; on entry its P and dP are in registers and nothing is in flight, on exit those of the next block.
  /// `last_dq`: there is a dQ of the step before. `more`: there is a next block.
  template <bool last_dq, bool more>
  TANDEM_DEVICE void step() {
    if constexpr (!more) release(shared_.value_empty);
    if constexpr (config.early_value) {
      pack_weights();
      ptx::wgmma_fence(weights_, grad_value_);
      issue_grad_value();  // line 12
      if (more || consumer_ == 0) give_turn();
      differentiate();  // line 14
      if constexpr (last_dq) {
        wait_grad_scores();
        ptx::wgmma_fence(grad_weights_, grad_key_, grad_query_);
        issue_grad_query();
      } else {
        ptx::wgmma_fence(grad_weights_, grad_key_);
      }
      issue_grad_key();
      store_grad_scores();
      wait_all_but<1, last_dq>(grad_value_);
      release_grad_out();
      publish<last_dq>();
      ptx::wgmma_wait<0>(grad_key_, weights_, grad_weights_);
      release_query();
      if constexpr (more) issue_next_scores();
    } else {
      differentiate();
      pack_weights();
      if constexpr (last_dq) {
        wait_grad_scores();
        ptx::wgmma_fence(grad_query_);
      }
      ptx::wgmma_fence(grad_weights_, grad_key_, weights_, grad_value_);
      issue_grad_value();
      if (more || consumer_ == 0) give_turn();
      issue_grad_key();
      if constexpr (last_dq) issue_grad_query();
      store_grad_scores();
      ptx::wgmma_wait<last_dq ? 2 : 1>(grad_value_);
      release_grad_out();
      ptx::wgmma_wait<last_dq ? 1 : 0>(grad_key_, weights_, grad_weights_);
      release_query();
      if constexpr (last_dq) ptx::wgmma_wait<0>(grad_query_);
      if constexpr (more) issue_next_scores();
      publish<last_dq>();
    }
    step_ = ptx::uniform(step_ + 1);
    if constexpr (more) {
      block_ += direction_;
      if (block_ == behind_) block_ = first_;  // of the group's next head
      weigh();
    }
  }

  template <int left, bool last_dq>
  TANDEM_DEVICE void wait_all_but(float (&sum)[head_dim / 2]) {
    if constexpr (last_dq)
      ptx::wgmma_wait<left>(sum, grad_query_);
    else
      ptx::wgmma_wait<left>(sum);
  }

  /// S^T = K Q^T (line 10).
  TANDEM_DEVICE void issue_scores(unsigned step) { issue_from_keys(scores_, shared_.key, shared_.query[stage(step)]); }
  TANDEM_DEVICE void issue_next_scores() {
    ptx::wait(shared_.query_full[stage(step_ + 1)], parity(step_ + 1));
    ptx::wgmma_fence(scores_);
    issue_scores(step_ + 1);
  }
  TANDEM_DEVICE void issue_from_keys(float (&target)[tile_query / 2], const Element* keys, const Element* queries) {
    const ptx::Descriptor a = ptx::matrix<Layout::swizzle>(
        reinterpret_cast<const uint8_t*>(keys) + consumer_ * 64 * Layout::row_bytes, 16, Layout::group_bytes);
    const ptx::Descriptor b = ptx::matrix<Layout::swizzle>(queries, 16, Layout::group_bytes);
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k)
      ptx::wgmma<Element>(target, ptx::advance(a, Layout::step_offset(tile_key, k)),
                          ptx::advance(b, Layout::step_offset(tile_query, k)), k != 0);
    ptx::wgmma_commit();
  }

  /// With S in flight: dP^T = V dO^T (line 13) goes behind it, and P = exp(S - LSE) (line 11) is formed meanwhile.
  TANDEM_DEVICE void weigh() {
    ptx::wait(shared_.grad_out_full[stage(step_)], parity(step_));
    ptx::wgmma_fence(grad_scores_);
    issue_from_keys(grad_scores_, shared_.value, shared_.grad_out[stage(step_)]);
    ptx::wgmma_wait<1>(scores_);
    wait_turn();
    if (block_ < full_begin_ || block_ >= full_end_)
      hide_unseeing_queries(scores_, tile(), params_, tile().first_key + 64 * consumer_ + fragment_row(warp_, lane_),
                            block_ * tile_query, lane_);
    exponentials(scores_, shared_.lse[stage(step_)], params_.scale_log2, lane_);
    ptx::wgmma_wait<0>(grad_scores_);
  }

  TANDEM_DEVICE void pack_weights() {
#pragma unroll
    for (int i = 0; i < tile_query / 2; i += 2)
      weights_[i / 8][i / 2 % 4] = ptx::pack<Element>(scores_[i], scores_[i + 1]);
  }
  /// dS = P * (dP - D).
  TANDEM_DEVICE void differentiate() {
    const Pair* delta = reinterpret_cast<const Pair*>(shared_.delta[stage(step_)]) + (lane_ & 3);
#pragma unroll
    for (int j = 0; j < tile_query / 8; ++j) {
      const Pair d = delta[4 * j];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int i = 4 * j + 2 * r;
        grad_weights_[i / 8][i / 2 % 4] =
            ptx::pack<Element>(scores_[i] * (grad_scores_[i] - d.x), scores_[i + 1] * (grad_scores_[i + 1] - d.y));
      }
    }
  }

  TANDEM_DEVICE void issue_grad_value() { issue_sum(grad_value_, weights_, shared_.grad_out[stage(step_)]); }
  TANDEM_DEVICE void issue_grad_key() { issue_sum(grad_key_, grad_weights_, shared_.query[stage(step_)]); }
  TANDEM_DEVICE void issue_sum(float (&sum)[head_dim / 2], const uint32_t (&a)[tile_query / 16][4],
                               const Element* rows) {
    const ptx::Descriptor b = ptx::matrix<Layout::swizzle>(rows, tile_query * Layout::row_bytes, Layout::group_bytes);
#pragma unroll
    for (int k = 0; k < tile_query / 16; ++k)
      ptx::wgmma<Element, ptx::Major::MN>(sum, a[k], ptx::advance(b, k * 16 * Layout::row_bytes), true);
    ptx::wgmma_commit();
  }

  TANDEM_DEVICE void wait_grad_scores() { ptx::wait(shared_.grad_scores_full[stage(step_ - 1)], parity(step_ - 1)); }
  /// dQ^T = K^T dS^T (line 16) of the block before: 64 columns of d, for all or half of the queries.
  TANDEM_DEVICE void issue_grad_query() {
    const uint8_t* keys = reinterpret_cast<const uint8_t*>(shared_.key);
    const uint8_t* scores = reinterpret_cast<const uint8_t*>(shared_.grad_scores[stage(step_ - 1)]);
    if constexpr (head_dim == 64) {
      scores += consumer_ * config.grad_queries() * ScoreLayout::row_bytes;
    } else {
      keys += Layout::chunk_offset(tile_key, consumer_);
    }
    const ptx::Descriptor a = ptx::matrix<Layout::swizzle>(keys, 16, Layout::group_bytes);
    const ptx::Descriptor b = ptx::matrix<ScoreLayout::swizzle>(scores, 16, ScoreLayout::group_bytes);
#pragma unroll
    for (int k = 0; k < tile_key / 16; ++k)
      ptx::wgmma<Element, ptx::Major::MN>(grad_query_, ptx::advance(a, k * 16 * Layout::row_bytes),
                                          ptx::advance(b, ScoreLayout::step_offset(tile_query, k)), k != 0);
    ptx::wgmma_commit();
  }

  /// dS to shared memory, rows being queries (line 15).
  TANDEM_DEVICE void store_grad_scores() {
    ptx::wait(shared_.grad_scores_empty[stage(step_)], parity(step_) ^ 1);
    uint8_t* target =
        reinterpret_cast<uint8_t*>(shared_.grad_scores[stage(step_)]) +
        ScoreLayout::chunk_offset(tile_query, consumer_) +
        swizzled_offset((lane_ >> 4) * 8 + (lane_ & 7), warp_ * 2 + ((lane_ >> 3) & 1), ScoreLayout::row_bytes);
#pragma unroll
    for (int k = 0; k < tile_query / 16; ++k)
      ptx::store_matrices_transposed(target + k * 16 * ScoreLayout::row_bytes, grad_weights_[k][0], grad_weights_[k][1],
                                     grad_weights_[k][2], grad_weights_[k][3]);
    ptx::sync_warp();  // all lanes have read LSE and D, which the releases that follow give back
  }
  /// Hands over this step's dS and the last step's dQ: one proxy fence for both, since it waits for the stores.
  template <bool last_dq>
  TANDEM_DEVICE void publish() {
    const unsigned slot = step_ - 1 + 2 * tile_;
    if constexpr (last_dq) {
      release_grad_scores();
      store_grad_query(slot);
    }
    ptx::fence_proxy_async();
    ptx::sync_warp();
    release(shared_.grad_scores_full[stage(step_)]);
    if constexpr (last_dq) release_slot(slot);
  }

  TANDEM_DEVICE float* wait_slot(unsigned slot) {
    ptx::wait(shared_.slot_empty[slot % config.slots][consumer_], static_cast<int>(slot / config.slots & 1) ^ 1);
    return shared_.slot[slot % config.slots][consumer_];
  }
  TANDEM_DEVICE void release_slot(unsigned slot) { release(shared_.slot_full[slot % config.slots][consumer_]); }
  TANDEM_DEVICE void store_grad_query(unsigned slot) {
    Quad* part = reinterpret_cast<Quad*>(wait_slot(slot)) + 32 * warp_ + lane_;
#pragma unroll
    for (int j = 0; j < config.grad_queries() / 8; ++j)
      part[128 * j] = {grad_query_[4 * j], grad_query_[4 * j + 1], grad_query_[4 * j + 2], grad_query_[4 * j + 3]};
  }
  /// Hands over dK or dV.
  TANDEM_DEVICE void stage_keys(float (&sum)[head_dim / 2], float scale, unsigned slot) {
    const int rows = tile().keys - tile().first_key - 64 * consumer_;
    stage_rows<Element, Layout>(sum, wait_slot(slot), scale, rows, warp_, lane_);
    ptx::sync_warp();
    release_slot(slot);
  }

  TANDEM_DEVICE void release(ptx::Barrier& barrier) {
    if (lane_ == 0) ptx::arrive(barrier);
  }
  TANDEM_DEVICE void release_grad_scores() { release(shared_.grad_scores_empty[stage(step_ - 1)]); }
  TANDEM_DEVICE void release_query() { release(shared_.query_empty[stage(step_)]); }
  TANDEM_DEVICE void release_grad_out() { release(shared_.grad_out_empty[stage(step_)]); }

  TANDEM_DEVICE const Tile& tile() const { return shared_.tile[tile_ % 2]; }
  TANDEM_DEVICE int keys_parity() const { return static_cast<int>(tile_ & 1); }
  // The rings of Q, dO and dS turn once a step.
  static TANDEM_DEVICE unsigned stage(unsigned step) { return step % Config::stages; }
  static TANDEM_DEVICE int parity(unsigned step) { return static_cast<int>(step / Config::stages & 1); }

  TANDEM_DEVICE void wait_turn() {
    if constexpr (config.turns) ptx::barrier_sync(turn_barrier(consumer_), turn_threads);
  }
  TANDEM_DEVICE void give_turn() {
    if constexpr (config.turns) ptx::barrier_arrive(turn_barrier(consumer_ ^ 1), turn_threads);
  }

  Shared<config>& shared_;
  const Params& params_;
  const int consumer_, warp_, lane_;
  unsigned tile_ = 0;             // their number so far
  unsigned step_ = 0, last_ = 0;  // of all tiles: the one whose P and dP are in registers, and where the tile ends
  int block_ = 0;                 // of queries, in that step
  int first_ = 0, behind_ = 0, direction_ = 0;  // of the tile's Steps
  int full_begin_ = 0, full_end_ = 0;           // its Tile::full
  float scores_[tile_query / 2], grad_scores_[tile_query / 2];
  float grad_key_[head_dim / 2], grad_value_[head_dim / 2], grad_query_[config.grad_queries() / 2];
  uint32_t weights_[tile_query / 16][4], grad_weights_[tile_query / 16][4];
};

}  // namespace tandem::internal::sm90::backward
