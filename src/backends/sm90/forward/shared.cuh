// The forward kernel's shared memory: one visible struct, whose sizeof is the launch size.
#pragma once

#include <cstddef>

#include "backends/sm90/forward/config.hpp"
#include "backends/sm90/forward/params.hpp"
#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90::forward {

template <Dtype dtype>
struct ElementOf;
template <>
struct ElementOf<Dtype::bf16> {
  using type = bf16;
};
template <>
struct ElementOf<Dtype::fp16> {
  using type = fp16;
};

template <Config config>
struct alignas(1024) Shared {
  using Element = typename ElementOf<config.dtype>::type;
  static constexpr int query_elements = 64 * config.head_dim;
  static constexpr int output_elements = 64 * (config.value_dim / config.output_pieces);
  static constexpr int key_elements = config.tile_key * config.head_dim;
  static constexpr int value_elements = config.tile_key * config.value_dim;

  Element query[config.consumers][query_elements];
  Element key[config.stages][key_elements];
  Element value[config.stages][value_elements];
  Element output[config.consumers][config.output_buffers][output_elements];
  ptx::Barrier query_full[config.consumers], query_empty[config.consumers];
  ptx::Barrier key_full[config.stages], key_empty[config.stages];
  ptx::Barrier value_full[config.stages], value_empty[config.stages];
  ptx::Barrier tile_full[2], tile_empty[2];
  Tile tile[2];

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
      {"tile_empty", offsetof(Shared, tile_empty), sizeof(ptx::Barrier)},
      {"tile", offsetof(Shared, tile), sizeof(Tile)},
  };
};

}  // namespace tandem::internal::sm90::forward
