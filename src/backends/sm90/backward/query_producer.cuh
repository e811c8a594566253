// The roles of the producer warpgroup in the kernel of dQ: a warp finds tiles of queries, as in the forward pass, and a
// warp loads Q and dO of a tile and the rings of K and V.
#pragma once

#include "backends/sm90/backward/query_shared.cuh"
#include "backends/sm90/backward/scheduler.cuh"
#include "backends/sm90/forward/producer_base.cuh"

namespace tandem::internal::sm90::backward {

/// All lanes of one warp.
template <QueryConfig config>
TANDEM_DEVICE void announce_query_tiles(QueryShared<config>& shared, const QueryParams& params) {
  TileScheduler<config.tile_query(), QuerySide, QueryParams> tiles(params);
  bool more = true;
  for (RingPosition<2> slot; more; slot.next()) {
    const Position position = tiles.next();
    more = position.tile >= 0;
    ptx::wait(shared.tile_empty[slot.stage], slot.parity ^ 1);
    if ((ptx::thread_index() & 31) != 0) continue;
    forward::describe<config.consumers, config.tile_key>(params, position, shared.tile[slot.stage]);
    ptx::arrive(shared.tile_full[slot.stage]);
  }
}

template <QueryConfig config>
class QueryProducer : public forward::ProducerBase<config, QueryShared<config>, 2> {
  using Base = forward::ProducerBase<config, QueryShared<config>, 2>;
  using Layout = typename Base::QueryLayout;

 public:
  TANDEM_DEVICE QueryProducer(QueryShared<config>& shared, const QueryParams& params)
      : Base(shared, params), query_params_(params) {}

  /// All lanes of one warp; the first one issues everything.
  TANDEM_DEVICE void run() {
    this->prefetch();
    for (RingPosition<2> slot;; slot.next()) {
      ptx::wait(shared_.tile_full[slot.stage], slot.parity);
      const forward::Tile& tile = shared_.tile[slot.stage];
      if (tile.row < 0) return;
      this->keys_ = forward::key_rows(this->params_, tile);
      load(tile);
      ptx::sync_warp();  // every lane has read the tile
      if (issuer_) ptx::arrive(shared_.tile_empty[slot.stage]);
    }
  }

 private:
  using Base::issuer_;
  using Base::key_;
  using Base::shared_;
  using Base::value_;

  /// In the consumers' order. A key's place is free a step after its value's; dO's is free last, since the last dQ
  /// leaves by it.
  TANDEM_DEVICE void load(const forward::Tile& tile) {
    const int first = forward::walk_begin<config.ascending>(tile.visit);
    const int end = forward::walk_end<config.ascending>(tile.visit);
    load_key(first);
    this->load_query(tile);
    load_value(first);
    load_grad_out(tile);
    for (int block = first + forward::walk_step<config.ascending>; block != end;
         block += forward::walk_step<config.ascending>) {
      load_key(block);
      load_value(block);
    }
  }
  TANDEM_DEVICE void load_key(int block) {
    ptx::wait(shared_.key_empty[key_.stage], key_.parity ^ 1);
    this->template load_block<Layout>(query_params_.key, shared_.key[key_.stage], shared_.key_full[key_.stage], block);
    key_.next();
  }
  TANDEM_DEVICE void load_value(int block) {
    ptx::wait(shared_.value_empty[value_.stage], value_.parity ^ 1);
    this->template load_block<Layout>(query_params_.value, shared_.value[value_.stage],
                                      shared_.value_full[value_.stage], block);
    value_.next();
  }
  TANDEM_DEVICE void load_grad_out(const forward::Tile& tile) {
#pragma unroll
    for (int w = 0; w < config.consumers; ++w)
      this->load_rows(query_params_.grad_out, tile, w, shared_.grad_out[w], shared_.grad_out_full[w],
                      shared_.grad_out_empty[w], grad_out_parity_);
    grad_out_parity_ ^= 1;
  }

  const QueryParams& query_params_;
  int grad_out_parity_ = 0;
};

}  // namespace tandem::internal::sm90::backward
