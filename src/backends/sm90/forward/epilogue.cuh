// The end of a tile (FA-3 Algorithm 1, lines 24 and 25): normalises O, writes LSE, and stores O through shared memory
// by TMA, which clips it to the sequence.
#pragma once

#include "backends/sm90/forward/named_barriers.hpp"
#include "backends/sm90/forward/shared.cuh"
#include "backends/sm90/math/softmax.cuh"

namespace tandem::internal::sm90::forward {

template <Config config>
struct Epilogue {
  using Element = typename Shared<config>::Element;
  using Output = float[config.value_dim / 2];
  using RowSoftmax = Softmax<Element, config.tile_key, config.value_dim>;
  using Layout = ChunkLayout<config.value_dim>;

  Shared<config>& shared;
  const Params& params;
  const Tile& tile;
  const int consumer, warp, lane;

  TANDEM_DEVICE void store(Output& output, RowSoftmax& softmax) {
    float factor[2] = {1, 1};
    if (params.sinks != nullptr) {
      const float sink = params.sinks[tile.head];
#pragma unroll
      for (int r = 0; r < 2; ++r) factor[r] = softmax.add_sink(r, sink);
    }
    if (params.lse != nullptr && (lane & 3) == 0) store_lse(softmax);
    // A row that saw no key is 0, even where a NaN of a value that others see has reached it.
    const bool empty0 = softmax.sum(0) == 0, empty1 = softmax.sum(1) == 0;
    if (ptx::any(empty0 || empty1)) {
#pragma unroll
      for (int i = 0; i < config.value_dim / 2; ++i)
        if (fragment_upper(i) ? empty1 : empty0) output[i] = 0;
    }
    factor[0] = empty0 ? 0.0f : factor[0] * ptx::reciprocal(softmax.sum(0));
    factor[1] = empty1 ? 0.0f : factor[1] * ptx::reciprocal(softmax.sum(1));
    store_output(output, factor[0], factor[1]);
  }

 private:
  TANDEM_DEVICE int row() const { return tile.row + 64 * consumer + fragment_row(warp, lane); }

  TANDEM_DEVICE void store_lse(const RowSoftmax& softmax) {
    float* lse = params.lse + tile.batch * params.lse_batch_stride + tile.head * params.lse_head_stride;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (row() + 8 * r < tile.rows)
        lse[static_cast<int64_t>(tile.lse_row + row() + 8 * r) * params.lse_row_stride] = softmax.lse(r);
  }

  TANDEM_DEVICE void store_output(const Output& output, float factor0, float factor1) {
    Element* staged = shared.output_tile(consumer);
    const int barrier = consumer_barrier(config.consumers, consumer);
    const bool issuer = warp == 0 && lane == 0;
    // The last tile's store must have read the buffer. Where it is the query's, every warp must be past its last QK.
    if (!config.output_in_query && issuer) ptx::bulk_wait_read<0>();
    ptx::barrier_sync(barrier, 128);
    const int stored_row = 16 * warp + (lane & 15);
#pragma unroll
    for (int k = 0; k < config.value_dim / 16; ++k) {
      const int offset = Layout::chunk_offset(64, k / Layout::steps) +
                         swizzled_offset(stored_row, k % Layout::steps * 2 + (lane >> 4), Layout::row_bytes);
      ptx::store_matrices(reinterpret_cast<uint8_t*>(staged) + offset,
                          ptx::pack<Element>(output[8 * k] * factor0, output[8 * k + 1] * factor0),
                          ptx::pack<Element>(output[8 * k + 2] * factor1, output[8 * k + 3] * factor1),
                          ptx::pack<Element>(output[8 * k + 4] * factor0, output[8 * k + 5] * factor0),
                          ptx::pack<Element>(output[8 * k + 6] * factor1, output[8 * k + 7] * factor1));
    }
    ptx::fence_proxy_async();
    ptx::barrier_sync(barrier, 128);
    if (issuer) {
#pragma unroll
      for (int c = 0; c < Layout::chunks; ++c)
        ptx::tma_store(params.out, staged + Layout::chunk_offset(64, c) / 2, c * Layout::chunk_columns,
                       tile.map_row + tile.row + 64 * consumer, tile.head, tile.map_batch, tile.map_wrap);
      ptx::bulk_commit();
      if constexpr (config.output_in_query) {
        ptx::bulk_wait_read<0>();
        ptx::arrive(shared.query_empty[consumer]);
      }
    }
  }
};

}  // namespace tandem::internal::sm90::forward
