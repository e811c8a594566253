// The end of a tile (FA-3 Algorithm 1, lines 24 and 25): normalises O, writes LSE, and stores O through shared memory
// by TMA, which clips it to the sequence.
#pragma once

#include "backends/sm90/forward/epilogue_rows.cuh"
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
  static constexpr int piece_chunks = Layout::chunks / config.output_pieces;
  static_assert(Layout::chunks % config.output_pieces == 0);

  Shared<config>& shared;
  const Params& params;
  const Tile& tile;
  const int consumer, warp, lane;

  TANDEM_DEVICE void store(Output& output, RowSoftmax& softmax) {
    float factor[2];
    EpilogueRows{params, tile, consumer, warp, lane}.finish(output, softmax, factor);
    store_output(output, factor[0], factor[1]);
  }

 private:
  /// By pieces where there isn't room for the whole: a buffer is filled again once its store has read it.
  TANDEM_DEVICE void store_output(const Output& output, float factor0, float factor1) {
    const int barrier = consumer_barrier(config.consumers, consumer);
    const bool issuer = warp == 0 && lane == 0;
#pragma unroll
    for (int piece = 0; piece < config.output_pieces; ++piece) {
      Element* staged = shared.output[consumer][piece % config.output_buffers];
      if (issuer && piece == 0) ptx::bulk_wait_read<0>();
      if (issuer && piece >= config.output_buffers) ptx::bulk_wait_read<config.output_buffers - 1>();
      ptx::barrier_sync(barrier, 128);
      stage(output, piece, factor0, factor1, staged);
      ptx::fence_proxy_async();
      ptx::barrier_sync(barrier, 128);
      if (!issuer) continue;
#pragma unroll
      for (int c = 0; c < piece_chunks; ++c)
        ptx::tma_store(params.out, staged + Layout::chunk_offset(64, c) / 2,
                       (piece * piece_chunks + c) * Layout::chunk_columns, tile.map_row + tile.row + 64 * consumer,
                       tile.head, tile.map_batch, tile.map_wrap);
      ptx::bulk_commit();
    }
  }

  TANDEM_DEVICE void stage(const Output& output, int piece, float factor0, float factor1, Element* staged) {
    const int row = 16 * warp + (lane & 15);
#pragma unroll
    for (int step = 0; step < piece_chunks * Layout::steps; ++step) {
      const float* o = output + 8 * (piece * piece_chunks * Layout::steps + step);
      const int offset = Layout::chunk_offset(64, step / Layout::steps) +
                         swizzled_offset(row, step % Layout::steps * 2 + (lane >> 4), Layout::row_bytes);
      ptx::store_matrices(
          reinterpret_cast<uint8_t*>(staged) + offset, ptx::pack<Element>(o[0] * factor0, o[1] * factor0),
          ptx::pack<Element>(o[2] * factor1, o[3] * factor1), ptx::pack<Element>(o[4] * factor0, o[5] * factor0),
          ptx::pack<Element>(o[6] * factor1, o[7] * factor1));
    }
  }
};

}  // namespace tandem::internal::sm90::forward
