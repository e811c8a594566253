// The scheduler's role in 8-bit attention: a warp of its own finds the tiles, describes them to loader and consumers,
// and brings their scales, so that the loader does nothing but load: a short tile takes less time than its description.
#pragma once

#include "backends/sm90/forward/scheduler.cuh"
#include "backends/sm90/forward_fp8/shared.cuh"
#include "backends/sm90/tile/ring.cuh"
#include "common/quantized.hpp"

namespace tandem::internal::sm90::forward_fp8 {

/// Where the keys of a tile have their scales and value groups.
struct Place {
  const float *key_scales, *value_scales;
  int32_t key_first, value_first, group, group_batch, keys;

  TANDEM_DEVICE float key_scale(const Params& params, int32_t row) const {
    return at(params.key_scale, key_scales, key_first, row);
  }
  TANDEM_DEVICE float value_scale(const Params& params, int32_t row) const {
    return at(params.value_scale, value_scales, value_first, row);
  }

 private:
  /// Of the block that a key lies in; 1 outside the sequence.
  TANDEM_DEVICE float at(const Scales& scales, const float* data, int32_t first, int32_t row) const {
    return row >= 0 && row < keys ? data[(first + row / scales.rows) * scales.block] : 1.0f;
  }
};

TANDEM_DEVICE Place place_of(const Params& params, const Tile& tile) {
  // Rows behind the last sequence borrow its scales.
  const int32_t batch = least(tile.batch, params.batch - 1), head = tile.head / params.group;
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
      if (lane_ == 0) forward::describe<config.consumers, config.tile_key>(params_, position, tile);
      ptx::sync_warp();  // the other lanes read the tile too
      if (position.tile >= 0) bring_scales(tile, shared_.tile_scales[slot_.stage]);
      ptx::sync_warp();  // lane 0 announces what all have written
      if (lane_ == 0) ptx::arrive(shared_.tile_full[slot_.stage]);
      if (position.tile < 0) break;
      slot_.next();
    }
  }

 private:
  /// A lane each: of the first blocks, and of the consumers' queries.
  TANDEM_DEVICE void bring_scales(const Tile& tile, TileScales<config.head_dim>& scales) const {
    const Place place = place_of(params_, tile);
    const int32_t row = (tile.visit.end - 1 - lane_) * config.tile_key;
    scales.keys[lane_] = place.key_scale(params_, row);
    scales.values[lane_] = place.value_scale(params_, row);
    if (lane_ < config.consumers) scales.query[lane_] = query_scale(tile, lane_) * params_.scale_log2;
    if (params_.value_mean != nullptr) bring_mean(tile, scales.mean);
  }
  TANDEM_DEVICE void bring_mean(const Tile& tile, float (&mean)[config.head_dim]) const {
    const int32_t batch = least(tile.batch, params_.batch - 1);
    const float* of_head =
        params_.value_mean + batch * params_.mean_batch_stride + tile.head / params_.group * params_.mean_head_stride;
#pragma unroll
    for (int i = 0; i < config.head_dim; i += 32) {
      const int channel = i + lane_;
      mean[channel] = channel < params_.value_dim ? of_head[channel * params_.mean_channel_stride] : 0.0f;
    }
  }
  TANDEM_DEVICE float query_scale(const Tile& tile, int consumer) const {
    const Scales& scales = params_.query_scale;
    const int32_t row = tile.row + 64 * consumer, batch = least(tile.batch, params_.batch - 1);
    if (row >= tile.queries) return 1;
    const int32_t first = params_.query_rows.cumulative != nullptr ? first_block(tile.lse_row, scales.rows, batch) : 0;
    return scales.data[batch * scales.batch + tile.head * scales.head + (first + row / scales.rows) * scales.block];
  }

  Shared<config>& shared_;
  const Params& params_;
  const int lane_;
  RingPosition<config.tile_slots> slot_;
};

}  // namespace tandem::internal::sm90::forward_fp8
