// The producer's role in 8-bit attention: the 16-bit one's, with the scales that belong to tiles and blocks, and with
// values that lie packed (forward_fp8/transpose.cuh has those that don't).
#pragma once

#include "backends/sm90/forward/producer_base.cuh"
#include "backends/sm90/forward_fp8/shared.cuh"
#include "common/quantized.hpp"

namespace tandem::internal::sm90::forward_fp8 {

template <Config config>
class Producer : public forward::ProducerBase<Producer<config>, config, Shared<config>, 1> {
  using Base = forward::ProducerBase<Producer<config>, config, Shared<config>, 1>;
  friend Base;

 public:
  TANDEM_DEVICE Producer(Shared<config>& shared, const Params& params) : Base(shared, params), fp8_params_(params) {}

 private:
  using Base::issuer_;
  using Base::key_;
  using Base::shared_;
  using Base::value_;

  /// Where a tile's keys have their scales and value groups.
  struct Place {
    const float *key_scales, *value_scales;
    int32_t key_first, value_first, group, group_batch, keys;
  };
  TANDEM_DEVICE Place place_of(const Tile& tile) const {
    const int32_t batch = sequence(tile), head = tile.head / fp8_params_.group;
    const Scales &key = fp8_params_.key_scale, &value = fp8_params_.value_scale;
    const bool packed = fp8_params_.key_rows.cumulative != nullptr;
    const int32_t start = packed ? forward::locate(fp8_params_.key_rows, batch, fp8_params_.batch).offset : 0;
    return {key.data + batch * key.batch + head * key.head,
            value.data + batch * value.batch + head * value.head,
            packed ? first_block(start, key.rows, batch) : 0,
            packed ? first_block(start, value.rows, batch) : 0,
            packed ? first_block(start, value_group, batch) : 0,
            packed ? 0 : batch,
            tile.keys};
  }
  /// Rows behind the last sequence borrow its scales.
  TANDEM_DEVICE int32_t sequence(const Tile& tile) const { return least(tile.batch, fp8_params_.batch - 1); }

  /// The scale of a block; 1 behind the last key.
  TANDEM_DEVICE float key_scale(const Place& place, int32_t block) const {
    return scale(fp8_params_.key_scale, place.key_scales, place.key_first, block * config.tile_key, place.keys);
  }
  TANDEM_DEVICE float value_scale(const Place& place, int32_t block) const {
    return scale(fp8_params_.value_scale, place.value_scales, place.value_first, block * config.tile_key, place.keys);
  }
  static TANDEM_DEVICE float scale(const Scales& scales, const float* data, int32_t first, int32_t row, int32_t rows) {
    return row < rows ? data[(first + row / scales.rows) * scales.block] : 1.0f;
  }

  /// Before a tile is announced: the scales that hold for all of it.
  TANDEM_DEVICE void describe_more(const Tile& tile, int slot) {
    if (tile.row < 0) return;
    const bool packed = fp8_params_.query_rows.cumulative != nullptr;
    const Scales& scales = fp8_params_.query_scale;
    const int32_t batch = sequence(tile);
    const int32_t first = packed ? first_block(tile.lse_row, scales.rows, batch) : 0;
    const float* of_head = scales.data + batch * scales.batch + tile.head * scales.head;
    TileScales& result = shared_.tile_scales[slot];
#pragma unroll
    for (int w = 0; w < config.consumers; ++w)
      result.query[w] = scale(scales, of_head, first, tile.row + 64 * w, tile.queries) * fp8_params_.scale_log2;
    result.value = value_scale(place_of(tile), tile.visit.end - 1);
  }

  /// Before a tile's loads.
  TANDEM_DEVICE void begin_tile(const Tile& tile) {
    place_ = place_of(tile);
    fetch_scales(tile.visit.end - 1);
    reference_ = next_value_;
  }
  /// Asked for a block early, since a stage that has become free is filled at once.
  TANDEM_DEVICE void fetch_scales(int32_t block) {
    if (block < 0) return;
    next_key_ = key_scale(place_, block);
    next_value_ = value_scale(place_, block);
  }

  TANDEM_DEVICE void load_key(int32_t block) {
    ptx::wait(shared_.key_empty[key_.stage], key_.parity ^ 1);
    if (issuer_) {
      BlockScales scales{next_key_, 0, 1, 0};
      if (next_value_ != reference_) {
        scales.value_log2 = ptx::log2(next_value_ * ptx::reciprocal(reference_));
        scales.value_inverse = reference_ * ptx::reciprocal(next_value_);
      }
      shared_.block_scales[key_.stage] = scales;
    }
    this->template load_block<typename Base::QueryLayout>(fp8_params_.key, shared_.key[key_.stage],
                                                          shared_.key_full[key_.stage], block);
    fetch_scales(block - 1);
    key_.next();
  }

  TANDEM_DEVICE void load_value(int32_t block) {
    ptx::Barrier& full = shared_.value_full[value_.stage];
    uint8_t* tile = shared_.value[value_.stage];
    ptx::wait(shared_.value_empty[value_.stage], value_.parity ^ 1);
    const bool patched = fp8_params_.patch_values && (block + 1) * config.tile_key > place_.keys;
    if (issuer_) {
      ptx::Barrier& landed = patched ? shared_.patch : full;
      ptx::arrive_expect(landed, config.tile_key * config.head_dim);
      ptx::tma_load(tile, fp8_params_.value, landed, 0, 0, place_.group + block * (config.tile_key / value_group),
                    this->head_, place_.group_batch);
    }
    if (patched) {
      patch(tile, place_.keys - block * config.tile_key);
      if (issuer_) ptx::arrive(full);
    }
    value_.next();
  }

  /// Clears what lies behind a sequence's last key (a NaN times a weight of 0 is NaN): the tile has `keys` keys.
  TANDEM_DEVICE void patch(uint8_t* tile, int32_t keys) {
    struct alignas(16) Places {
      uint32_t bytes[4];
    };
    ptx::wait(shared_.patch, patch_parity_);
    patch_parity_ ^= 1;
    const int32_t whole = greatest(keys, 0) / value_group, rest = greatest(keys, 0) % value_group;
    Places kept{};
#pragma unroll
    for (int place = 0; place < value_group; ++place)
      if (packed_key(place) < rest) kept.bytes[place / 4] |= 0xffu << place % 4 * 8;
    auto* channels = reinterpret_cast<Places*>(tile);
    for (int32_t i = whole * config.head_dim + (ptx::thread_index() & 31); i < config.tile_key / 16 * config.head_dim;
         i += 32) {
      Places places{};
      if (i < (whole + 1) * config.head_dim) {
        places = channels[i];
#pragma unroll
        for (int j = 0; j < 4; ++j) places.bytes[j] &= kept.bytes[j];
      }
      channels[i] = places;
    }
    ptx::fence_proxy_async();
    ptx::sync_warp();
  }

  const Params& fp8_params_;
  int patch_parity_ = 0;
  Place place_{};
  float next_key_ = 1, next_value_ = 1, reference_ = 1;
};

}  // namespace tandem::internal::sm90::forward_fp8
