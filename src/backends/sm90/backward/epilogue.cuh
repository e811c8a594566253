// The end of a tile (FA-3 Algorithm 3, line 22): dK and dV to 16 bits and, through shared memory, to global memory by
// TMA, which clips them to the sequence.
#pragma once

#include "backends/sm90/backward/shared.cuh"
#include "backends/sm90/tile/layout.hpp"

namespace tandem::internal::sm90::backward {

template <Config config>
struct Epilogue {
  using Element = typename Shared<config>::Element;
  using Layout = ChunkLayout<config.head_dim>;

  Shared<config>& shared;
  const Params& params;
  const int warp, lane;

  /// Stages 64 rows of the sum, from `first` on, in the columns from chunk `first_chunk` on of the operand's tile,
  /// which nothing reads any more. `barrier` is the warpgroup's own.
  template <int N>
  TANDEM_DEVICE void store(float (&sum)[N], Element* operand, const ptx::TensorMap& map, float scale, int first,
                           int first_chunk, int barrier) const {
    const Tile& tile = shared.tile;
    const int row = first + fragment_row(warp, lane), rows = tile.keys - tile.first_key;
    // Rows that don't count are 0 whatever a query's NaN made of them.
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = row + 8 * fragment_upper(i) < rows ? sum[i] * scale : 0.0f;
    uint8_t* staged = reinterpret_cast<uint8_t*>(operand) + Layout::chunk_offset(config.tile_key(), first_chunk);
#pragma unroll
    for (int k = 0; k < N / 8; ++k) {
      const int offset =
          Layout::chunk_offset(config.tile_key(), k / Layout::steps) +
          swizzled_offset(first + 16 * warp + (lane & 15), k % Layout::steps * 2 + (lane >> 4), Layout::row_bytes);
      ptx::store_matrices(staged + offset, ptx::pack<Element>(sum[8 * k], sum[8 * k + 1]),
                          ptx::pack<Element>(sum[8 * k + 2], sum[8 * k + 3]),
                          ptx::pack<Element>(sum[8 * k + 4], sum[8 * k + 5]),
                          ptx::pack<Element>(sum[8 * k + 6], sum[8 * k + 7]));
    }
    ptx::fence_proxy_async();
    ptx::barrier_sync(barrier, 128);
    if (warp != 0 || lane != 0) return;
#pragma unroll
    for (int c = 0; c < N / 32; ++c)
      ptx::tma_store(map, staged + Layout::chunk_offset(config.tile_key(), c) + first * Layout::row_bytes,
                     (first_chunk + c) * Layout::chunk_columns, tile.out_row + tile.first_key + first, tile.head,
                     tile.out_batch, tile.key_wrap);
    ptx::bulk_commit();
  }
};

}  // namespace tandem::internal::sm90::backward
