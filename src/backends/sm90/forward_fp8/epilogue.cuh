// The end of a tile in 8-bit attention: normalises O with the value's scale, adds the value's mean, and stores O in the
// plan's type through shared memory by TMA, which clips it to the sequence.
#pragma once

#include "backends/sm90/forward/epilogue_rows.cuh"
#include "backends/sm90/forward/named_barriers.hpp"
#include "backends/sm90/forward_fp8/shared.cuh"

namespace tandem::internal::sm90::forward_fp8 {

template <Config config>
struct Epilogue {
  using Output = float[config.head_dim / 2];

  Shared<config>& shared;
  const Params& params;
  const Tile& tile;
  const int consumer, warp, lane;

  /// `value_scale`: what O's values are in units of.
  TANDEM_DEVICE void store(Output& output, RowSums& rows, float value_scale) {
    float mean[mean_channels] = {};  // asked for early: everything until it is needed hides the latency
    if (params.value_mean != nullptr) load_mean(mean);
    const float sum[2] = {rows.sum(0), rows.sum(1)};
    float factor[2];
    forward::EpilogueRows{params, tile, consumer, warp, lane}.finish(output, rows, factor);
    // The weight of all keys together: 1, less where there is a sink, 0 where the row saw no key.
    const float weight[2] = {sum[0] * factor[0], sum[1] * factor[1]};
#pragma unroll
    for (int i = 0; i < config.head_dim / 2; ++i) output[i] *= factor[fragment_upper(i)] * value_scale;
    await_buffer(consumer, issuer());
    if (params.value_mean != nullptr) add_mean(output, mean, weight);
    if (params.out_dtype == Dtype::bf16)
      stage16<bf16>(output);
    else if (params.out_dtype == Dtype::fp16)
      stage16<fp16>(output);
    else
      stage8(output);
    ptx::fence_proxy_async();
    ptx::barrier_sync(barrier(consumer), 128);
    if (!issuer()) return;
    if (params.out_dtype == Dtype::e4m3)
      store_chunks<ChunkLayout<config.head_dim, 1>>();
    else
      store_chunks<ChunkLayout<config.head_dim, 2>>();
    ptx::bulk_commit();
  }

  /// Until the last tile's store has read the buffer, and every warp has done with what it holds.
  static TANDEM_DEVICE void await_buffer(int consumer, bool issuer) {
    if (issuer) ptx::bulk_wait_read<0>();
    ptx::barrier_sync(barrier(consumer), 128);
  }

 private:
  static TANDEM_DEVICE int barrier(int consumer) { return forward::consumer_barrier(config.consumers, consumer); }
  TANDEM_DEVICE bool issuer() const { return warp == 0 && lane == 0; }

  static constexpr int mean_channels = ceil_divide(config.head_dim, 128);  // that a thread brings

  TANDEM_DEVICE void load_mean(float (&mean)[mean_channels]) const {
    const int32_t batch = least(tile.batch, params.batch - 1);
    const float* of_head =
        params.value_mean + batch * params.mean_batch_stride + tile.head / params.group * params.mean_head_stride;
#pragma unroll
    for (int i = 0; i < mean_channels; ++i) {
      const int channel = 128 * i + 32 * warp + lane;
      mean[i] = channel < params.value_dim ? of_head[channel * params.mean_channel_stride] : 0.0f;
    }
  }
  /// The mean passes through shared memory behind the staged output.
  TANDEM_DEVICE void add_mean(Output& output, const float (&mean)[mean_channels], const float (&weight)[2]) {
    auto* shared_mean = reinterpret_cast<float*>(shared.output[consumer] + 64 * config.head_dim * 2);
#pragma unroll
    for (int i = 0; i < mean_channels; ++i) {
      const int channel = 128 * i + 32 * warp + lane;
      if (channel < config.head_dim) shared_mean[channel] = mean[i];
    }
    ptx::barrier_sync(barrier(consumer), 128);
#pragma unroll
    for (int i = 0; i < config.head_dim / 2; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float x = shared_mean[fragment_column(lane, i + j)];
        output[i + j] = ptx::multiply_add(weight[0], x, output[i + j]);
        output[i + j + 2] = ptx::multiply_add(weight[1], x, output[i + j + 2]);
      }
    }
  }

  template <class Element>
  TANDEM_DEVICE void stage16(const Output& output) {
    using Layout = ChunkLayout<config.head_dim, 2>;
    const int row = 16 * warp + (lane & 15);
#pragma unroll
    for (int k = 0; k < config.head_dim / 16; ++k) {
      const float* o = output + 8 * k;
      const int offset = Layout::chunk_offset(64, k / Layout::steps) +
                         swizzled_offset(row, k % Layout::steps * 2 + (lane >> 4), Layout::row_bytes);
      ptx::store_matrices(shared.output[consumer] + offset, ptx::pack<Element>(o[0], o[1]),
                          ptx::pack<Element>(o[2], o[3]), ptx::pack<Element>(o[4], o[5]),
                          ptx::pack<Element>(o[6], o[7]));
    }
  }
  /// e4m3, two neighbours at a time: a thread has no more.
  TANDEM_DEVICE void stage8(const Output& output) {
    using Layout = ChunkLayout<config.head_dim, 1>;
    const float inverse = ptx::reciprocal(*params.out_scale);
    const int row = fragment_row(warp, lane);
#pragma unroll
    for (int i = 0; i < config.head_dim / 2; i += 4) {
      const uint32_t packed = ptx::pack_e4m3(output[i] * inverse, output[i + 1] * inverse, output[i + 2] * inverse,
                                             output[i + 3] * inverse);
      const int column = fragment_column(lane, i), in_chunk = column % Layout::chunk_columns;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int offset = Layout::chunk_offset(64, column / Layout::chunk_columns) +
                           swizzled_offset(row + 8 * r, in_chunk / 16, Layout::row_bytes) + in_chunk % 16;
        *reinterpret_cast<uint16_t*>(shared.output[consumer] + offset) = static_cast<uint16_t>(packed >> 16 * r);
      }
    }
  }

  template <class Layout>
  TANDEM_DEVICE void store_chunks() {
#pragma unroll
    for (int c = 0; c < Layout::chunks; ++c)
      ptx::tma_store(params.out, shared.output[consumer] + Layout::chunk_offset(64, c), c * Layout::chunk_columns,
                     tile.map_row + tile.row + 64 * consumer, tile.head, tile.map_batch, tile.map_wrap);
  }
};

}  // namespace tandem::internal::sm90::forward_fp8
