// The loader's role in 8-bit attention: as the 16-bit producer's, with the scales of blocks beside their keys, and with
// values that lie packed, or in rows for the transposer.
#pragma once

#include "backends/sm90/forward/producer_base.cuh"
#include "backends/sm90/forward_fp8/scheduler.cuh"
#include "backends/sm90/forward_fp8/shared.cuh"

namespace tandem::internal::sm90::forward_fp8 {

template <Config config>
class Producer : public forward::ProducerBase<config, Shared<config>, 1> {
  using Base = forward::ProducerBase<config, Shared<config>, 1>;

 public:
  TANDEM_DEVICE Producer(Shared<config>& shared, const Params& params)
      : Base(shared, params), fp8_params_(params), lane_(ptx::thread_index() & 31) {}

  /// Runs in a warp of the producer warpgroup, all lanes together; the first one issues everything.
  TANDEM_DEVICE void run() {
    this->prefetch();
    while (true) {
      ptx::wait(shared_.tile_full[slot_.stage], slot_.parity);
      const Tile& tile = shared_.tile[slot_.stage];
      if (tile.row < 0) break;
      begin_tile(tile);
      load(tile);
      ptx::sync_warp();  // every lane has read the tile
      if (issuer_) ptx::arrive(shared_.tile_empty[slot_.stage]);
      slot_.next();
    }
  }

 private:
  static constexpr int step_to_next = forward::walk_step<config.ascending>;
  using Base::issuer_;
  using Base::key_;
  using Base::shared_;
  using Base::value_;

  /// In the consumers' order, forward/params.hpp; a value block is needed one step after its key.
  TANDEM_DEVICE void load(const Tile& tile) {
    const int begin = forward::walk_begin<config.ascending>(tile.visit), count = tile.visit.end - tile.visit.begin;
#pragma unroll 1
    for (int i = 0; i <= count; ++i) {
      if (i < count) load_key(begin + i * step_to_next, i);
      if (i > 0)
        load_value(begin + (i - 1) * step_to_next);
      else
        this->load_query(tile);
    }
  }
  TANDEM_DEVICE void begin_tile(const Tile& tile) {
    this->keys_ = forward::key_rows(fp8_params_, tile);
    const Place place = place_of(fp8_params_, tile);
    group_ = place.group;
    group_batch_ = place.group_batch;
    key_count_ = place.keys;
  }
  /// Those of a tile's first blocks, which the scheduler brings. A lane holds the scales of one of 32 blocks.
  TANDEM_DEVICE void take_scales() {
    ptx::wait(shared_.scales_full[slot_.stage], slot_.parity);
    const TileScales<config.head_dim>& scales = shared_.tile_scales[slot_.stage];
    key_scale_ = scales.keys[lane_];
    value_scale_ = scales.values[lane_];
    reference_ = scales.values[0];
  }
  TANDEM_DEVICE void fetch_scales(int32_t block) {
    const Place place = place_of(fp8_params_, shared_.tile[slot_.stage]);
    key_scale_ = place.template key_scale<config.tile_key>(fp8_params_, block + lane_ * step_to_next);
    value_scale_ = place.template value_scale<config.tile_key>(fp8_params_, block + lane_ * step_to_next);
  }

  /// The `index`-th block of the tile. A stage of keys is full when they have landed and their scales are written.
  TANDEM_DEVICE void load_key(int32_t block, int32_t index) {
    ptx::wait(shared_.key_empty[key_.stage], key_.parity ^ 1);
    this->template load_block<typename Base::QueryLayout>(fp8_params_.key, shared_.key[key_.stage],
                                                          shared_.key_full[key_.stage], block);
    const int lane = index % TileScales<config.head_dim>::blocks;
    if (index == 0)
      take_scales();
    else if (lane == 0 && fp8_params_.scales_by_block)
      fetch_scales(block);
    BlockScales scales{ptx::shuffle(key_scale_, lane), 0, 1, 0};
    const float value = ptx::shuffle(value_scale_, lane);
    if (value != reference_) {
      scales.value_log2 = ptx::log2(value * ptx::reciprocal(reference_));
      scales.value_inverse = reference_ * ptx::reciprocal(value);
    }
    if (issuer_) {
      shared_.block_scales[key_.stage] = scales;
      ptx::arrive(shared_.key_full[key_.stage]);
    }
    key_.next();
  }

  TANDEM_DEVICE void load_value(int32_t block) {
    if constexpr (config.transposes())
      load_raw_value(block);
    else
      load_packed_value(block);
  }
  TANDEM_DEVICE void load_raw_value(int32_t block) {
    ptx::wait(shared_.raw.empty[raw_.stage], raw_.parity ^ 1);
    this->template load_block<typename Base::QueryLayout>(fp8_params_.value, shared_.raw.tile[raw_.stage],
                                                          shared_.raw.full[raw_.stage], block);
    raw_.next();
  }
  TANDEM_DEVICE void load_packed_value(int32_t block) {
    ptx::Barrier& full = shared_.value_full[value_.stage];
    uint8_t* tile = shared_.value[value_.stage];
    ptx::wait(shared_.value_empty[value_.stage], value_.parity ^ 1);
    const bool patched = fp8_params_.patch_values && (block + 1) * config.tile_key > key_count_;
    if (issuer_) {
      ptx::Barrier& landed = patched ? shared_.patch : full;
      ptx::arrive_expect(landed, config.tile_key * config.head_dim);
      ptx::tma_load(tile, fp8_params_.value, landed, 0, 0, group_ + block * (config.tile_key / value_group),
                    this->keys_.head, group_batch_);
    }
    if (patched) {
      patch(tile, key_count_ - block * config.tile_key);
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
    for (int32_t i = whole * config.head_dim + lane_; i < config.tile_key / 16 * config.head_dim; i += 32) {
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
  const int lane_;
  RingPosition<config.tile_slots> slot_;
  RingPosition<config.transposes() ? config.raw_buffers() : 1> raw_;
  int patch_parity_ = 0;
  int32_t group_ = 0, group_batch_ = 0, key_count_ = 0;
  float key_scale_ = 1, value_scale_ = 1, reference_ = 1;
};

}  // namespace tandem::internal::sm90::forward_fp8
