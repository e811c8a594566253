// The end of a tile in 8-bit attention: normalises O with the value's scale, adds the value's mean, and stores O in the
// plan's type through shared memory by TMA, which clips it to the sequence. A warp is on its own with its 16 rows: a
// short tile has no time for its warps to wait for each other.
#pragma once

#include "backends/sm90/forward/epilogue_rows.cuh"
#include "backends/sm90/forward_fp8/shared.cuh"

namespace tandem::internal::sm90::forward_fp8 {

template <Config config>
struct Epilogue {
  using Output = float[config.head_dim / 2];
  static constexpr int stored_rows = Config::stored_rows;

  Shared<config>& shared;
  const Params& params;
  const Tile& tile;
  const TileScales<config.head_dim>& scales;
  const int consumer, warp, lane;

  TANDEM_DEVICE void store(Output& output, RowSums& rows) {
    const float sum[2] = {rows.sum(0), rows.sum(1)};
    float factor[2];
    forward::EpilogueRows{params, tile, consumer, warp, lane}.finish(output, rows, factor);
    // The weight of all keys together: 1, less where there is a sink, 0 where the row saw no key.
    const float weight[2] = {sum[0] * factor[0], sum[1] * factor[1]};
#pragma unroll
    for (int r = 0; r < 2; ++r) factor[r] *= scales.values[0];
    if (params.sinks != nullptr || ptx::any(sum[0] == 0 || sum[1] == 0))
      add_mean(output, factor, [&](int r, float mean) { return weight[r] * mean; });
    else
      add_mean(output, factor, [](int, float mean) { return mean; });
    await_buffer(lane);
    if (params.out_dtype == Dtype::e4m3)
      stage8(output);
    else if (params.out_dtype == Dtype::fp16)
      stage16<fp16>(output);
    else
      stage16<bf16>(output);
    ptx::fence_proxy_async();
    ptx::sync_warp();
    // Uniform, since ptxas would loop over the values of a warp otherwise.
    const int at[4] = {ptx::uniform(tile.map_row + tile.row + 64 * consumer + stored_rows * warp),
                       ptx::uniform(tile.head), ptx::uniform(tile.map_batch), ptx::uniform(tile.map_wrap)};
    if (lane != 0) return;
    if (params.out_dtype == Dtype::e4m3)
      store_chunks<ChunkLayout<config.head_dim, 1>>(at);
    else
      store_chunks<ChunkLayout<config.head_dim, 2>>(at);
    ptx::bulk_commit();
  }

  /// Until the warp's last store has read its buffer.
  static TANDEM_DEVICE void await_buffer(int lane) {
    if (lane == 0) ptx::bulk_wait_read<0>();
    ptx::sync_warp();
  }

 private:
  TANDEM_DEVICE uint8_t* buffer() const { return shared.output[consumer][warp]; }

  /// O times the factor of its row, and the mean, 0 where none was taken out, as `weigh` gives it for a row.
  template <class Weigh>
  TANDEM_DEVICE void add_mean(Output& output, const float (&factor)[2], Weigh weigh) const {
    struct alignas(8) Pair {
      float column[2];
    };
#pragma unroll
    for (int i = 0; i < config.head_dim / 2; i += 4) {
      const Pair mean = *reinterpret_cast<const Pair*>(scales.mean + fragment_column(lane, i));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int r = fragment_upper(j);
        output[i + j] = ptx::multiply_add(output[i + j], factor[r], weigh(r, mean.column[j & 1]));
      }
    }
  }

  template <class Element>
  TANDEM_DEVICE void stage16(const Output& output) {
    using Layout = ChunkLayout<config.head_dim, 2>;
#pragma unroll
    for (int k = 0; k < config.head_dim / 16; ++k) {
      const float* o = output + 8 * k;
      const int offset = Layout::chunk_offset(stored_rows, k / Layout::steps) +
                         swizzled_offset(lane & 15, k % Layout::steps * 2 + (lane >> 4), Layout::row_bytes);
      ptx::store_matrices(buffer() + offset, ptx::pack<Element>(o[0], o[1]), ptx::pack<Element>(o[2], o[3]),
                          ptx::pack<Element>(o[4], o[5]), ptx::pack<Element>(o[6], o[7]));
    }
  }
  /// e4m3, two neighbours at a time: a thread has no more.
  TANDEM_DEVICE void stage8(const Output& output) {
    using Layout = ChunkLayout<config.head_dim, 1>;
    const float inverse = ptx::reciprocal(*params.out_scale);
    const int row = fragment_row(0, lane);
#pragma unroll
    for (int i = 0; i < config.head_dim / 2; i += 4) {
      const uint32_t packed = ptx::pack_e4m3(output[i] * inverse, output[i + 1] * inverse, output[i + 2] * inverse,
                                             output[i + 3] * inverse);
      const int column = fragment_column(lane, i), in_chunk = column % Layout::chunk_columns;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int offset = Layout::chunk_offset(stored_rows, column / Layout::chunk_columns) +
                           swizzled_offset(row + 8 * r, in_chunk / 16, Layout::row_bytes) + in_chunk % 16;
        *reinterpret_cast<uint16_t*>(buffer() + offset) = static_cast<uint16_t>(packed >> 16 * r);
      }
    }
  }

  template <class Layout>
  TANDEM_DEVICE void store_chunks(const int (&at)[4]) const {
#pragma unroll
    for (int c = 0; c < Layout::chunks; ++c)
      ptx::tma_store(params.out, buffer() + Layout::chunk_offset(stored_rows, c), c * Layout::chunk_columns, at[0],
                     at[1], at[2], at[3]);
  }
};

}  // namespace tandem::internal::sm90::forward_fp8
