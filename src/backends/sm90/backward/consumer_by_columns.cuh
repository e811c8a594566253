// The consumers' role where no warpgroup could hold dK and dV whole (Division::columns): the warpgroups take turns at
// query blocks, and each owns half of the columns of dK and dV. The owner of a block computes S = Q K^T, dP = dO V^T,
// P, dS and dQ = dS K (FA-3 Algorithm 3, lines 10 to 16); P and dS go through shared memory, and both warpgroups add
// them to their halves: dV += P^T dO, dK += dS^T Q. A warpgroup adds the other's block while its own S and dP are
// computed, so that one is in the exponentials while the other feeds the tensor cores.
#pragma once

#include "backends/sm90/backward/elements.cuh"
#include "backends/sm90/backward/ordered.cuh"
#include "backends/sm90/backward/scheduler.cuh"
#include "backends/sm90/backward/shared.cuh"
#include "backends/sm90/backward/staging.cuh"
#include "backends/sm90/tile/layout.hpp"

namespace tandem::internal::sm90::backward {

template <Config config>
class ColumnConsumer {
  using Element = typename Shared<config>::Element;
  using Layout = ChunkLayout<config.head_dim>;         // of K, V, Q, dO
  using ScoreLayout = ChunkLayout<config.tile_key()>;  // of P and dS
  static constexpr int tile_query = config.tile_query, tile_key = config.tile_key(), head_dim = config.head_dim;
  static constexpr int half = head_dim / 2;
  static_assert(tile_query == 64 && tile_key == 64 && half % 64 == 0);

 public:
  TANDEM_DEVICE ColumnConsumer(Shared<config>& shared, const Params& params, int warpgroup)
      : shared_(shared),
        params_(params),
        consumer_(warpgroup),
        warp_((ptx::thread_index() >> 5) & 3),
        lane_(ptx::thread_index() & 31) {}

  TANDEM_DEVICE void run() {
    for (;; ++tile_) {
      ptx::wait(shared_.tile_full[tile_ % 2], static_cast<int>(tile_ / 2 & 1));
      if (ptx::uniform(tile().first_key) < 0) return;
      ptx::wait(shared_.key_full, static_cast<int>(tile_ & 1));
      ptx::wait(shared_.value_full, static_cast<int>(tile_ & 1));
      full_begin_ = ptx::uniform(tile().full.begin);
      full_end_ = ptx::uniform(tile().full.end);
      all_blocks(Steps::of_warp(tile(), params_.group));
      store_keys();
      ptx::sync_warp();  // every lane has read the tile
      if (lane_ == 0) ptx::arrive(shared_.tile_empty[tile_ % 2]);
    }
  }

 private:
  /// Blocks are numbered on over all tiles; even ones are warpgroup 0's.
  TANDEM_DEVICE void all_blocks(Steps steps) {
#pragma unroll
    for (int i = 0; i < half / 2; ++i) grad_key_[i] = grad_value_[i] = 0;
    const unsigned end = step_ + static_cast<unsigned>(steps.left());
    if (step_ == end) return;
    if (step_ % 2 == static_cast<unsigned>(consumer_)) {
      own_block<false>(steps);
    } else {
      steps.next();
      ++step_;
    }
    while (step_ < end) own_block<true>(steps);
    if ((end - 1) % 2 != static_cast<unsigned>(consumer_)) add_last_block(end - 1);
    step_ = end;
  }

  /// dV and dK leave through V's and K's memory, which nobody reads any more.
  TANDEM_DEVICE void store_keys() {
    ptx::barrier_sync(1, 128 * Config::consumers);
    store_half(grad_value_, shared_.value, params_.grad_value, 1);
    store_half(grad_key_, shared_.key, params_.grad_key, params_.scale);
    if (warp_ != 0 || lane_ != 0) return;
    ptx::bulk_wait_read<0>();
    ptx::arrive(shared_.value_empty);
    ptx::arrive(shared_.key_empty);
  }
  TANDEM_DEVICE void store_half(float (&sum)[half / 2], Element* operand, const ptx::TensorMap& map, float scale) {
    uint8_t* staged = reinterpret_cast<uint8_t*>(operand) + Layout::chunk_offset(tile_key, half / 64 * consumer_);
    stage_rows<Element, Layout>(sum, staged, scale, tile().keys - tile().first_key, warp_, lane_);
    ptx::barrier_sync(2 + consumer_, 128);
    if (warp_ != 0 || lane_ != 0) return;
#pragma unroll
    for (int c = 0; c < half / 64; ++c)
      ptx::tma_store(map, staged + Layout::chunk_offset(tile_key, c), half * consumer_ + c * Layout::chunk_columns,
                     tile().out_row + tile().first_key, tile().head, tile().out_batch, tile().key_wrap);
    ptx::bulk_commit();
  }

  /// A block of this warpgroup, and the other's before it if there is one.
  template <bool with_last>
  TANDEM_DEVICE void own_block(Steps& steps) {
    const unsigned step = step_;
    ptx::wait(shared_.query_full[stage(step)], parity(step));
    ptx::wgmma_fence(scores_, grad_scores_);
    issue_scores(scores_, shared_.query[stage(step)], shared_.key);  // line 10
    ptx::wait(shared_.grad_out_full[stage(step)], parity(step));
    ptx::wgmma_fence();  // without it ptxas adds one of its own (C7519)
    issue_scores(grad_scores_, shared_.grad_out[stage(step)], shared_.value);  // line 13
    if constexpr (with_last) {
      wait_weights(step - 1);
      ptx::wgmma_fence(grad_value_, grad_key_);
      issue_sums(step - 1);
    }
    // Before the waits: while these loads were on their way, ptxas would go on to the next wait before the arithmetic.
    const Statistics of_rows = load_statistics();
    ptx::wgmma_wait<with_last ? 3 : 1>(scores_);
    weigh(steps.block(), of_rows);
    ptx::wgmma_wait<with_last ? 2 : 0>(grad_scores_);
    differentiate(of_rows);
    if constexpr (with_last) {
      ptx::wgmma_wait<0>(grad_value_, grad_key_);
      release(step - 1);
    }
    ptx::wgmma_fence(grad_weights_, grad_query_);
    issue_grad_query(0);
    store_scores(shared_.grad_scores[stage(step)], grad_weights_);
    ptx::fence_proxy_async();
    ptx::sync_warp();
    if (lane_ == 0) ptx::arrive(shared_.scores_full[stage(step)]);
    wait_weights(step);
    ptx::wgmma_fence(grad_value_, grad_key_);
    issue_sums(step);
    ptx::wgmma_wait<2>(grad_query_, grad_weights_);
    const int64_t block =
        static_cast<int64_t>(steps.head()) * params_.blocks.per_head + tile().first_block + steps.block();
    const bool stores = Order<config>::stores(tile(), steps.block());
    ptx::wait(shared_.may_add[consumer_], static_cast<int>(step / 2 & 1));
    add_grad_query(block, 0, stores);
    ptx::wgmma_fence(grad_query_, grad_weights_);
    issue_grad_query(1);
    ptx::wgmma_wait<1>(grad_value_, grad_key_);
    release(step);
    ptx::wgmma_wait<0>(grad_query_, grad_weights_);
    add_grad_query(block, 1, stores);
    ptx::sync_warp();
    if (lane_ == 0) ptx::arrive(shared_.added[consumer_]);
    steps.next();
    steps.next();
    step_ = ptx::uniform(step_ + 2);
  }
  TANDEM_DEVICE void add_last_block(unsigned step) {
    wait_weights(step);
    ptx::wgmma_fence(grad_value_, grad_key_);
    issue_sums(step);
    ptx::wgmma_wait<0>(grad_value_, grad_key_);
    release(step);
  }

  /// S = Q K^T and dP = dO V^T.
  TANDEM_DEVICE void issue_scores(float (&target)[tile_key / 2], const Element* rows, const Element* keys) {
    const ptx::Descriptor a = ptx::uniform(ptx::matrix<Layout::swizzle>(rows, 16, Layout::group_bytes));
    const ptx::Descriptor b = ptx::uniform(ptx::matrix<Layout::swizzle>(keys, 16, Layout::group_bytes));
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k)
      ptx::wgmma<Element>(target, ptx::advance(a, Layout::step_offset(tile_query, k)),
                          ptx::advance(b, Layout::step_offset(tile_key, k)), k != 0);
    ptx::wgmma_commit();
  }

  /// This warpgroup's columns of dV += P^T dO and dK += dS^T Q (lines 12 and 15): two groups.
  TANDEM_DEVICE void issue_sums(unsigned step) {
    issue_sum(grad_value_, shared_.weights[stage(step)], shared_.grad_out[stage(step)]);
    issue_sum(grad_key_, shared_.grad_scores[stage(step)], shared_.query[stage(step)]);
  }
  TANDEM_DEVICE void issue_sum(float (&sum)[half / 2], const Element* scores, const Element* rows) {
    const ptx::Descriptor a = ptx::uniform(ptx::matrix<ScoreLayout::swizzle>(scores, 16, ScoreLayout::group_bytes));
    const ptx::Descriptor b = ptx::uniform(columns(rows, tile_query, consumer_));
#pragma unroll
    for (int k = 0; k < tile_query / 16; ++k)
      ptx::wgmma<Element, ptx::Major::MN, ptx::Major::MN>(sum, ptx::advance(a, k * 16 * ScoreLayout::row_bytes),
                                                          ptx::advance(b, k * 16 * Layout::row_bytes), true);
    ptx::wgmma_commit();
  }
  /// Half of the columns of a tile.
  static TANDEM_DEVICE ptx::Descriptor columns(const Element* tile, int rows, int which) {
    return ptx::matrix<Layout::swizzle>(
        reinterpret_cast<const uint8_t*>(tile) + Layout::chunk_offset(rows, half / 64 * which),
        rows * Layout::row_bytes, Layout::group_bytes);
  }
  /// Half of the columns of dQ = dS K (line 16).
  TANDEM_DEVICE void issue_grad_query(int which) {
    const ptx::Descriptor b = columns(shared_.key, tile_key, which);
#pragma unroll
    for (int k = 0; k < tile_key / 16; ++k)
      ptx::wgmma<Element, ptx::Major::MN>(grad_query_, grad_weights_[k], ptx::advance(b, k * 16 * Layout::row_bytes),
                                          k != 0);
    ptx::wgmma_commit();
  }

  /// LSE and D of this thread's two rows.
  struct Statistics {
    float lse[2], delta[2];
  };
  TANDEM_DEVICE Statistics load_statistics() const {
    const int row = fragment_row(warp_, lane_);
    const float *lse = shared_.lse[stage(step_)] + row, *delta = shared_.delta[stage(step_)] + row;
    return {{lse[0], lse[8]}, {delta[0], delta[8]}};
  }

  /// P = exp(S - LSE) (line 11), to shared memory too.
  TANDEM_DEVICE void weigh(int block, const Statistics& of_rows) {
    if (block < full_begin_ || block >= full_end_) mask(block);
    const float scale = params_.scale_log2;
#pragma unroll
    for (int i = 0; i < tile_key / 2; ++i)
      scores_[i] = ptx::exp2(ptx::multiply_add(scores_[i], scale, -of_rows.lse[fragment_upper(i)]));
    ptx::wait(shared_.scores_empty[stage(step_)], parity(step_) ^ 1);
#pragma unroll
    for (int i = 0; i < tile_key / 2; i += 2)
      grad_weights_[i / 8][i / 2 % 4] = ptx::pack<Element>(scores_[i], scores_[i + 1]);
    store_scores(shared_.weights[stage(step_)], grad_weights_);
  }
  /// Hides the keys that a query doesn't see.
  TANDEM_DEVICE void mask(int block) {
    const Tile& tile = this->tile();
    const int first_column = tile.first_key + fragment_column(lane_, 0);
    const float hidden = params_.scale_log2 > 0 ? -__builtin_huge_valf() : __builtin_huge_valf();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = block * tile_query + fragment_row(warp_, lane_) + 8 * r;
      const Range seen = visible_keys(query, tile.keys, tile.diagonal, params_.window);
      const int begin = seen.begin - first_column, end = seen.end - first_column;
#pragma unroll
      for (int i = 0; i < tile_key / 2; ++i)
        if (fragment_upper(i) == r && (fragment_column(0, i) >= end || fragment_column(0, i) < begin))
          scores_[i] = hidden;
    }
  }
  /// dS = P * (dP - D) (line 14).
  TANDEM_DEVICE void differentiate(const Statistics& of_rows) {
#pragma unroll
    for (int i = 0; i < tile_key / 2; i += 2) {
      const float d = of_rows.delta[fragment_upper(i)];
      grad_weights_[i / 8][i / 2 % 4] =
          ptx::pack<Element>(scores_[i] * (grad_scores_[i] - d), scores_[i + 1] * (grad_scores_[i + 1] - d));
    }
  }

  TANDEM_DEVICE void store_scores(Element* target, const uint32_t (&scores)[tile_key / 16][4]) {
    const int row = 16 * warp_ + (lane_ & 15);
#pragma unroll
    for (int k = 0; k < tile_key / 16; ++k)
      ptx::store_matrices(
          reinterpret_cast<uint8_t*>(target) + swizzled_offset(row, 2 * k + (lane_ >> 4), ScoreLayout::row_bytes),
          scores[k][0], scores[k][1], scores[k][2], scores[k][3]);
  }

  TANDEM_DEVICE void wait_weights(unsigned step) { ptx::wait(shared_.scores_full[stage(step)], parity(step)); }
  TANDEM_DEVICE void release(unsigned step) {
    if (lane_ != 0) return;
    ptx::arrive(shared_.grad_out_empty[stage(step)]);
    ptx::arrive(shared_.query_empty[stage(step)]);
    ptx::arrive(shared_.scores_empty[stage(step)]);
  }

  /// Half of dQ's columns straight from registers: fragments of 64 rows, in the order of the threads.
  TANDEM_DEVICE void add_grad_query(int64_t block, int which, bool stores) {
    float* target = params_.accumulator + (block * 2 + which) * (tile_query * half) + 4 * (32 * warp_ + lane_);
    if (stores) {
#pragma unroll
      for (int i = 0; i < half / 2; i += 4)
        *reinterpret_cast<Quad*>(target + 128 * i) = {grad_query_[i], grad_query_[i + 1], grad_query_[i + 2],
                                                      grad_query_[i + 3]};
    } else {
#pragma unroll
      for (int i = 0; i < half / 2; i += 4)
        ptx::add_four(target + 128 * i, grad_query_[i], grad_query_[i + 1], grad_query_[i + 2], grad_query_[i + 3]);
    }
  }

  TANDEM_DEVICE const Tile& tile() const { return shared_.tile[tile_ % 2]; }
  static TANDEM_DEVICE unsigned stage(unsigned step) { return step % Config::stages; }
  static TANDEM_DEVICE int parity(unsigned step) { return static_cast<int>(step / Config::stages & 1); }

  Shared<config>& shared_;
  const Params& params_;
  const int consumer_, warp_, lane_;
  unsigned tile_ = 0;                  // their number so far
  unsigned step_ = 0;                  // of all tiles
  int full_begin_ = 0, full_end_ = 0;  // Tile::full
  float scores_[tile_key / 2], grad_scores_[tile_key / 2];
  float grad_key_[half / 2], grad_value_[half / 2], grad_query_[half / 2];
  uint32_t grad_weights_[tile_key / 16][4];  // P first, then dS
};

}  // namespace tandem::internal::sm90::backward
