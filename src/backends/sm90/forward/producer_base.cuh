// What the producers of the 8-bit forward and of the backward's kernel of dQ share: loading a tile's queries, and
// blocks of keys and values. A kernel's producer derives from it and knows the order in which its consumers need them.
#pragma once

#include "backends/sm90/forward/scheduler.cuh"
#include "backends/sm90/tile/layout.hpp"
#include "backends/sm90/tile/ring.cuh"

namespace tandem::internal::sm90::forward {

/// A tile's keys in the tensor maps of keys and of values in rows.
struct KeyRows {
  int32_t row, head, batch, wrap;
};
TANDEM_DEVICE KeyRows key_rows(const Params& params, const Tile& tile) {
  const int32_t head = tile.head / params.group;
  if (!params.key_rows.ragged) return {0, head, tile.batch, 0};
  const int32_t offset = locate(params.key_rows, least(tile.batch, params.batch - 1), params.batch).offset;
  return {ragged_rows - tile.keys, head, offset + tile.keys, ragged_rows};
}

template <auto config, class SharedMemory, int element_bytes>
class ProducerBase {
 public:
  TANDEM_DEVICE ProducerBase(SharedMemory& shared, const Params& params)
      : shared_(shared), params_(params), issuer_((ptx::thread_index() & 31) == 0) {}

 protected:
  using QueryLayout = ChunkLayout<config.head_dim, element_bytes>;  // of queries and keys

  TANDEM_DEVICE void prefetch() const {
    if (!issuer_) return;
    ptx::prefetch(params_.query);
    ptx::prefetch(params_.key);
    ptx::prefetch(params_.value);
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
                    c * Layout::chunk_columns, keys_.row + block * config.tile_key, keys_.head, keys_.batch,
                    keys_.wrap);
  }

  SharedMemory& shared_;
  const Params& params_;
  const bool issuer_;
  RingPosition<config.stages> key_;
  RingPosition<value_stages<config>()> value_;
  RingPosition<config.query_buffers> query_;
  KeyRows keys_{};
};

}  // namespace tandem::internal::sm90::forward
