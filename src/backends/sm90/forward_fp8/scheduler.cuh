// The scheduler's role in 8-bit attention: a warp of its own finds the tiles, describes them to loader and consumers,
// and brings their scales, so that the loader does nothing but load: a short tile takes less time than its description.
// The description is announced before the scales are there, so that a tile's first keys are on their way meanwhile.
#pragma once

#include "backends/sm90/forward/scheduler.cuh"
#include "backends/sm90/forward_fp8/shared.cuh"
#include "backends/sm90/tile/ring.cuh"
#include "common/quantized.hpp"

namespace tandem::internal::sm90::forward_fp8 {

/// The scale of a tile, whose sequence has its first one at `data[first * scales.block]`.
TANDEM_DEVICE float scale_of_tile(const Scales& scales, const float* data, int32_t first, int32_t tile) {
  if (scales.block != 0) data += (first + quotient(tile, scales.tile_of_block)) * scales.block;
  return *data;
}

/// Where the keys of a tile have their scales and value groups.
struct Place {
  const float *key_scales, *value_scales;
  int32_t key_first, value_first, group, group_batch, keys;

  /// Of a block of `tile_key` keys.
  template <int tile_key>
  TANDEM_DEVICE float key_scale(const Params& params, int32_t block) const {
    return at<tile_key>(params.key_scale, key_scales, key_first, block);
  }
  template <int tile_key>
  TANDEM_DEVICE float value_scale(const Params& params, int32_t block) const {
    return at<tile_key>(params.value_scale, value_scales, value_first, block);
  }

 private:
  /// 1 outside the sequence.
  template <int tile_key>
  TANDEM_DEVICE float at(const Scales& scales, const float* data, int32_t first, int32_t block) const {
    return block >= 0 && block * tile_key < keys ? scale_of_tile(scales, data, first, block) : 1.0f;
  }
};

TANDEM_DEVICE Place place_of(const Params& params, const Tile& tile) {
  // Rows behind the last sequence borrow its scales.
  const int32_t batch = least(tile.batch, params.batch - 1), head = quotient(tile.head, params.inverse_group);
  const Scales &key = params.key_scale, &value = params.value_scale;
  const bool packed = params.key_rows.cumulative != nullptr;
  const int32_t start = packed ? forward::locate(params.key_rows, batch, params.batch).offset : 0;
  return {key.data + batch * key.batch + head * key.head,
          value.data + batch * value.batch + head * value.head,
          packed ? first_block(start, key.rows, batch) : 0,
          packed ? first_block(start, value.rows, batch) : 0,
          packed ? first_block(start, value_group, batch) : 0,
          packed ? 0 : batch,
          tile.keys};
}

template <Config config>
class Scheduler {
 public:
  TANDEM_DEVICE Scheduler(Shared<config>& shared, const Params& params)
      : shared_(shared), params_(params), lane_(ptx::thread_index() & 31) {}

  /// Runs in a warp of the producer warpgroup, all lanes together.
  TANDEM_DEVICE void run() {
    forward::TileScheduler<config.tile_query()> tiles(params_);
    while (true) {
      const forward::Position position = tiles.next();
      Tile& tile = shared_.tile[slot_.stage];
      ptx::wait(shared_.tile_empty[slot_.stage], slot_.parity ^ 1);
      if (lane_ == 0) {
        forward::describe<config.consumers, config.tile_key>(params_, position, tile);
        ptx::arrive(shared_.tile_full[slot_.stage]);
      }
      if (position.tile < 0) break;
      ptx::sync_warp();  // the other lanes read the tile too
      bring_scales(tile, shared_.tile_scales[slot_.stage]);
      ptx::sync_warp();  // lane 0 announces what all have written
      if (lane_ == 0) ptx::arrive(shared_.scales_full[slot_.stage]);
      slot_.next();
    }
  }

 private:
  /// A lane each: of the first blocks, and of the consumers' queries.
  TANDEM_DEVICE void bring_scales(const Tile& tile, TileScales<config.head_dim>& scales) const {
    // All are asked for before the first has come: a block's first tile waits for them.
    const float query = query_scale(tile, least(lane_, config.consumers - 1));
    const Place place = place_of(params_, tile);
    const int32_t block =
        forward::walk_begin<config.ascending>(tile.visit) + lane_ * forward::walk_step<config.ascending>;
    const float key = place.template key_scale<config.tile_key>(params_, block);
    const float value = place.template value_scale<config.tile_key>(params_, block);
    bring_mean(tile, scales.mean);
    scales.keys[lane_] = key;
    scales.values[lane_] = value;
    if (lane_ < config.consumers) scales.query[lane_] = query * params_.scale_log2;
  }
  TANDEM_DEVICE void bring_mean(const Tile& tile, float (&mean)[config.head_dim]) const {
    float loaded[config.head_dim / 32] = {};  // 0 where none was taken out
    const int32_t batch = least(tile.batch, params_.batch - 1);
    const float* of_head = params_.value_mean + batch * params_.mean_batch_stride +
                           quotient(tile.head, params_.inverse_group) * params_.mean_head_stride;
#pragma unroll
    for (int i = 0; i < config.head_dim / 32; ++i) {
      const int channel = 32 * i + lane_;
      if (params_.value_mean != nullptr && channel < params_.value_dim)
        loaded[i] = of_head[channel * params_.mean_channel_stride];
    }
#pragma unroll
    for (int i = 0; i < config.head_dim / 32; ++i) mean[32 * i + lane_] = loaded[i];
  }
  TANDEM_DEVICE float query_scale(const Tile& tile, int consumer) const {
    const Scales& scales = params_.query_scale;
    const int32_t row = tile.row + 64 * consumer, batch = least(tile.batch, params_.batch - 1);
    if (row >= tile.queries) return 1;
    const int32_t first = params_.query_rows.cumulative != nullptr ? first_block(tile.lse_row, scales.rows, batch) : 0;
    return scale_of_tile(scales, scales.data + batch * scales.batch + tile.head * scales.head, first, row / 64);
  }

  Shared<config>& shared_;
  const Params& params_;
  const int lane_;
  RingPosition<config.tile_slots> slot_;
};

}  // namespace tandem::internal::sm90::forward_fp8
