// The 8-bit forward kernel's shared memory: one visible struct, whose sizeof is the launch size.
#pragma once

#include <cstddef>

#include "backends/sm90/forward_fp8/config.hpp"
#include "backends/sm90/forward_fp8/params.hpp"
#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90::forward_fp8 {

template <Dtype dtype>
struct ElementOf {
  using type = e4m3;
  using Score = float;
};
template <>
struct ElementOf<Dtype::int8> {
  using type = int8_t;
  using Score = int;
};

/// Values as they lie in memory, before the producer warpgroup has transposed them.
template <int buffers, int bytes>
struct RawValues {
  uint8_t tile[buffers][bytes];
  ptx::Barrier full[buffers], empty[buffers];
};
template <int bytes>
struct RawValues<0, bytes> {};

template <Config config>
struct alignas(1024) Shared {
  using Element = typename ElementOf<config.dtype>::type;

  uint8_t query[config.consumers][config.query_buffers][64 * config.head_dim];
  uint8_t key[config.stages][config.tile_key * config.head_dim];
  uint8_t value[config.stages][config.tile_key * config.head_dim];
  uint8_t output[config.consumers][4][config.output_bytes()];  // a warp each
  [[no_unique_address]] RawValues<config.raw_buffers(), config.tile_key * config.head_dim> raw;
  ptx::Barrier query_full[config.consumers][config.query_buffers], query_empty[config.consumers][config.query_buffers];
  ptx::Barrier key_full[config.stages], key_empty[config.stages];
  ptx::Barrier value_full[config.stages], value_empty[config.stages];
  ptx::Barrier tile_full[config.tile_slots], scales_full[config.tile_slots], tile_empty[config.tile_slots];
  ptx::Barrier patch;
  BlockScales block_scales[config.stages];
  TileScales<config.head_dim> tile_scales[config.tile_slots];
  Tile tile[config.tile_slots];

  static constexpr bool as_planned() { return sizeof(Shared) == config.shared_bytes() && sizeof(Shared) <= 232448; }

  static constexpr ptx::Part parts[] = {
      {"query", offsetof(Shared, query), sizeof(query[0])},
      {"key", offsetof(Shared, key), sizeof(key[0])},
      {"value", offsetof(Shared, value), sizeof(value[0])},
      {"output", offsetof(Shared, output), sizeof(output[0])},
      {"query_full", offsetof(Shared, query_full), sizeof(ptx::Barrier)},
      {"query_empty", offsetof(Shared, query_empty), sizeof(ptx::Barrier)},
      {"key_full", offsetof(Shared, key_full), sizeof(ptx::Barrier)},
      {"key_empty", offsetof(Shared, key_empty), sizeof(ptx::Barrier)},
      {"value_full", offsetof(Shared, value_full), sizeof(ptx::Barrier)},
      {"value_empty", offsetof(Shared, value_empty), sizeof(ptx::Barrier)},
      {"tile_full", offsetof(Shared, tile_full), sizeof(ptx::Barrier)},
      {"scales_full", offsetof(Shared, scales_full), sizeof(ptx::Barrier)},
      {"tile_empty", offsetof(Shared, tile_empty), sizeof(ptx::Barrier)},
      {"patch", offsetof(Shared, patch), sizeof(ptx::Barrier)},
      {"block_scales", offsetof(Shared, block_scales), sizeof(BlockScales)},
      {"tile_scales", offsetof(Shared, tile_scales), sizeof(tile_scales[0])},
      {"tile", offsetof(Shared, tile), sizeof(Tile)},
  };
};

}  // namespace tandem::internal::sm90::forward_fp8
