// The consumers' role in the kernel of dQ, which is the forward pass with another product: each warpgroup owns 64 query
// rows and walks over the keys that they see (FA-3 Algorithm 3, lines 10 to 16, its loops exchanged, so that dQ is
// summed in registers: bitwise repeatable, without atomics). dQ of a block is added while S and dP of the next are
// computed, and the exponentials run beside dP, as the softmax beside PV in Algorithm 2.
#pragma once

#include "backends/sm90/backward/query_shared.cuh"
#include "backends/sm90/backward/staging.cuh"
#include "backends/sm90/forward/consumer_base.cuh"

namespace tandem::internal::sm90::backward {

template <QueryConfig config>
class QueryConsumer : public forward::ConsumerBase<QueryConsumer<config>, config, QueryShared<config>> {
  using Base = forward::ConsumerBase<QueryConsumer<config>, config, QueryShared<config>>;
  friend Base;
  using Element = typename QueryShared<config>::Element;
  using Layout = ChunkLayout<config.head_dim>;
  static constexpr int tile_key = config.tile_key, head_dim = config.head_dim;

 public:
  TANDEM_DEVICE QueryConsumer(QueryShared<config>& shared, const QueryParams& params, int warpgroup)
      : Base(shared, params, warpgroup), query_params_(params) {}

 private:
  using Base::block_;
  using Base::consumer_;
  using Base::key_;
  using Base::lane_;
  using Base::query_;
  using Base::shared_;
  using Base::value_;
  using Base::warp_;

  static constexpr float infinity = __builtin_huge_valf();

  /// LSE and D of this thread's two rows. Rows that don't count have LSE = +inf, which makes their weights 0.
  TANDEM_DEVICE void before_tile(const forward::Tile& tile) {
    const QueryParams& p = query_params_;
    const bool packed = p.query_rows.cumulative != nullptr;
    const int row = tile.row + 64 * consumer_ + fragment_row(warp_, lane_);
    const int64_t first =
        static_cast<int64_t>(tile.head) * p.blocks.per_head + p.blocks.first(tile.batch, tile.lse_row, packed);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = row + 8 * r, block = at / p.blocks.tile;
      lse_[r] = infinity;
      delta_[r] = 0;
      if (at >= tile.queries) continue;
      const float* statistics = p.statistics + (first + block) * 2 * p.blocks.tile + (at - block * p.blocks.tile);
      lse_[r] = statistics[0];
      delta_[r] = statistics[p.blocks.tile];
    }
#pragma unroll
    for (int i = 0; i < head_dim / 2; ++i) grad_query_[i] = 0;
  }

  /// S, dP and dS of the first block, with nothing to overlap with yet.
  TANDEM_DEVICE void first_block(const forward::Tile& tile) {
    ptx::wait(shared_.query_full[consumer_][query_.stage], query_.parity);
    ptx::wait(shared_.key_full[key_.stage], key_.parity);
    ptx::wgmma_fence(scores_, grad_scores_);
    issue_scores();
    ptx::wait(shared_.grad_out_full[consumer_], grad_out_parity_);
    ptx::wait(shared_.value_full[value_.stage], value_.parity);
    ptx::wgmma_fence();
    issue_grad_scores();
    ptx::wgmma_wait<1>(scores_);
    if (this->needs_mask(block_)) this->mask(scores_, tile, block_, hidden());
    finish_block();
  }
  template <class Masked>
  TANDEM_DEVICE void steps(const forward::Tile& tile, int end, Masked masked) {
    while (this->before(block_, end)) step(tile, masked);
  }
  /// dQ of the block before, then S and dP of this one.
  template <class Masked>
  TANDEM_DEVICE void step(const forward::Tile& tile, Masked) {
    ptx::wgmma_fence(grad_query_, grad_weights_, scores_, grad_scores_);
    issue_grad_query();
    ptx::wait(shared_.key_full[key_.stage], key_.parity);
    ptx::wgmma_fence();
    issue_scores();
    ptx::wait(shared_.value_full[value_.stage], value_.parity);
    ptx::wgmma_fence();
    issue_grad_scores();
    ptx::wgmma_wait<2>(grad_query_, grad_weights_);
    release_last_key();
    ptx::wgmma_wait<1>(scores_);
    if constexpr (Masked::value) this->mask(scores_, tile, block_, hidden());
    finish_block();
  }
  TANDEM_DEVICE void last_output() {
    ptx::wgmma_fence(grad_query_, grad_weights_);
    issue_grad_query();
    ptx::wgmma_wait<0>(grad_query_, grad_weights_);
    release_last_key();
  }

  /// P (line 11), beside dP; dS (line 14).
  TANDEM_DEVICE void finish_block() {
    const float scale = query_params_.scale_log2;
#pragma unroll
    for (int i = 0; i < tile_key / 2; ++i)
      scores_[i] = ptx::exp2(ptx::multiply_add(scores_[i], scale, -lse_[fragment_upper(i)]));
    // Passes at once. Left alone, ptxas puts the next wait before the exponentials; it moves none past this one's loop.
    ptx::wait(shared_.value_full[value_.stage], value_.parity);
    ptx::wgmma_wait<0>(grad_scores_);
    this->release_value();
#pragma unroll
    for (int i = 0; i < tile_key / 2; i += 2) {
      const float d = delta_[fragment_upper(i)];
      grad_weights_[i / 8][i / 2 % 4] =
          ptx::pack<Element>(scores_[i] * (grad_scores_[i] - d), scores_[i + 1] * (grad_scores_[i + 1] - d));
    }
    key_.next();
    block_ += Base::step_to_next;
  }

  /// S = Q K^T (line 10).
  TANDEM_DEVICE void issue_scores() { issue_rows(scores_, shared_.query[consumer_][0], shared_.key[key_.stage]); }
  /// dP = dO V^T (line 13).
  TANDEM_DEVICE void issue_grad_scores() {
    issue_rows(grad_scores_, shared_.grad_out[consumer_], shared_.value[value_.stage]);
  }
  TANDEM_DEVICE void issue_rows(float (&target)[tile_key / 2], const Element* rows, const Element* keys) {
    const ptx::Descriptor a = ptx::uniform(ptx::matrix<Layout::swizzle>(rows, 16, Layout::group_bytes));
    const ptx::Descriptor b = ptx::uniform(ptx::matrix<Layout::swizzle>(keys, 16, Layout::group_bytes));
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k)
      ptx::wgmma<Element>(target, ptx::advance(a, Layout::step_offset(64, k)),
                          ptx::advance(b, Layout::step_offset(tile_key, k)), k != 0);
    ptx::wgmma_commit();
  }
  /// dQ += dS K (line 16), of the block before.
  TANDEM_DEVICE void issue_grad_query() {
    const ptx::Descriptor b = ptx::uniform(
        ptx::matrix<Layout::swizzle>(shared_.key[key_.stage ^ 1], tile_key * Layout::row_bytes, Layout::group_bytes));
#pragma unroll
    for (int k = 0; k < tile_key / 16; ++k)
      ptx::wgmma<Element, ptx::Major::MN>(grad_query_, grad_weights_[k], ptx::advance(b, k * 16 * Layout::row_bytes),
                                          true);
    ptx::wgmma_commit();
  }
  static_assert(config.stages == 2);
  TANDEM_DEVICE void release_last_key() {
    if (lane_ == 0) ptx::arrive(shared_.key_empty[key_.stage ^ 1]);
  }

  /// dQ leaves through dO's memory, which this warpgroup alone reads, so that the next Q arrives early.
  TANDEM_DEVICE void after_tile(const forward::Tile& tile) {
    // A row that sees no key is 0, whatever its dO holds.
#pragma unroll
    for (int i = 0; i < head_dim / 2; ++i)
      if (lse_[fragment_upper(i)] == infinity) grad_query_[i] = 0;
    Element* staged = shared_.grad_out[consumer_];
    const int row = tile.row + 64 * consumer_, barrier = forward::consumer_barrier(config.consumers, consumer_);
    ptx::barrier_sync(barrier, 128);
    stage_rows<Element, Layout>(grad_query_, staged, query_params_.scale, tile.queries - row, warp_, lane_);
    ptx::barrier_sync(barrier, 128);
    grad_out_parity_ ^= 1;
    if (warp_ != 0 || lane_ != 0) return;
#pragma unroll
    for (int c = 0; c < Layout::chunks; ++c)
      ptx::tma_store(query_params_.out, reinterpret_cast<const uint8_t*>(staged) + Layout::chunk_offset(64, c),
                     c * Layout::chunk_columns, tile.map_row + row, tile.head, tile.map_batch, tile.map_wrap);
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();
    ptx::arrive(shared_.grad_out_empty[consumer_]);
  }

  TANDEM_DEVICE float hidden() const { return query_params_.scale_log2 > 0 ? -infinity : infinity; }

  const QueryParams& query_params_;
  int grad_out_parity_ = 0;
  float lse_[2], delta_[2];
  float scores_[tile_key / 2], grad_scores_[tile_key / 2], grad_query_[head_dim / 2];
  uint32_t grad_weights_[tile_key / 16][4];  // dS
};

}  // namespace tandem::internal::sm90::backward
