// What the producers of forward kernels share: loading a tile's query, keys and values in the order in which the
// consumers need them. A kernel's producer derives from it.
#pragma once

#include "backends/sm90/forward/scheduler.cuh"
#include "backends/sm90/tile/layout.hpp"
#include "backends/sm90/tile/ring.cuh"

namespace tandem::internal::sm90::forward {

/// `Derived` has load_key(block) and load_value(block).
template <class Derived, auto config, class SharedMemory, int element_bytes>
class ProducerBase {
 public:
  TANDEM_DEVICE ProducerBase(SharedMemory& shared, const Params& params)
      : shared_(shared), params_(params), issuer_((ptx::thread_index() & 31) == 0) {}

 protected:
  using QueryLayout = ChunkLayout<config.head_dim, element_bytes>;  // of queries and keys

  TANDEM_DEVICE Derived& self() { return static_cast<Derived&>(*this); }

  /// From the last block to the first, since the masked ones are last; a value block is needed one step after its key.
  TANDEM_DEVICE void load(const Tile& tile) {
    const int first = tile.visit.end - 1, last = tile.visit.begin;
    self().load_key(first);
    load_query(tile);
    for (int block = first; block >= last; --block) {
      if (block > last) self().load_key(block - 1);
      self().load_value(block);
    }
  }

  TANDEM_DEVICE void prefetch() const {
    if (!issuer_) return;
    ptx::prefetch(params_.query);
    ptx::prefetch(params_.key);
    ptx::prefetch(params_.value);
  }

  TANDEM_DEVICE void find_keys(const Tile& tile) {
    const bool ragged = params_.key_rows.ragged;
    const int32_t offset =
        ragged ? locate(params_.key_rows, least(tile.batch, params_.batch - 1), params_.batch).offset : 0;
    row_ = ragged ? ragged_rows - tile.keys : 0;
    batch_ = ragged ? offset + tile.keys : tile.batch;
    wrap_ = ragged ? ragged_rows : 0;
    head_ = tile.head / params_.group;
  }

  TANDEM_DEVICE void load_query(const Tile& tile) {
    const int b = query_.stage;
#pragma unroll
    for (int w = 0; w < config.consumers; ++w)
      load_rows(params_.query, tile, w, shared_.query[w][b], shared_.query_full[w][b], shared_.query_empty[w][b],
                query_.parity);
    query_.next();
  }
  /// 64 query rows for consumer w.
  TANDEM_DEVICE void load_rows(const ptx::TensorMap& map, const Tile& tile, int w, void* target, ptx::Barrier& full,
                               ptx::Barrier& empty, int parity) {
    ptx::wait(empty, parity ^ 1);
    if (!issuer_) return;
    ptx::arrive_expect(full, QueryLayout::bytes(64));
#pragma unroll
    for (int c = 0; c < QueryLayout::chunks; ++c)
      ptx::tma_load(static_cast<uint8_t*>(target) + QueryLayout::chunk_offset(64, c), map, full,
                    c * QueryLayout::chunk_columns, tile.map_row + tile.row + 64 * w, tile.head, tile.map_batch,
                    tile.map_wrap);
  }

  /// A tile of rows, keys or values.
  template <class Layout>
  TANDEM_DEVICE void load_block(const ptx::TensorMap& map, void* tile, ptx::Barrier& full, int block) {
    if (!issuer_) return;
    ptx::arrive_expect(full, Layout::bytes(config.tile_key));
#pragma unroll
    for (int c = 0; c < Layout::chunks; ++c)
      ptx::tma_load(static_cast<uint8_t*>(tile) + Layout::chunk_offset(config.tile_key, c), map, full,
                    c * Layout::chunk_columns, row_ + block * config.tile_key, head_, batch_, wrap_);
  }

  SharedMemory& shared_;
  const Params& params_;
  const bool issuer_;
  RingPosition<config.stages> key_;
  RingPosition<value_stages<config>()> value_;
  RingPosition<config.query_buffers> query_;
  int32_t row_ = 0, head_ = 0, batch_ = 0, wrap_ = 0;  // this tile's keys in the tensor maps
};

}  // namespace tandem::internal::sm90::forward
