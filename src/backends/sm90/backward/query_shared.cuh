// Shared memory and parameters' type of the kernel of dQ: one visible struct, whose sizeof is the launch size.
#pragma once

#include <cstddef>

#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/backward/query_config.hpp"
#include "backends/sm90/forward/shared.cuh"
#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90::backward {

template <QueryConfig config>
struct alignas(1024) QueryShared {
  using Element = typename forward::ElementOf<config.dtype>::type;
  static constexpr int consumers = QueryConfig::consumers, buffers = QueryConfig::query_buffers;

  Element query[consumers][buffers][64 * config.head_dim];
  Element grad_out[consumers][64 * config.head_dim];  // and dQ on its way out
  Element key[QueryConfig::stages][config.tile_key * config.head_dim];
  Element value[config.value_stages][config.tile_key * config.head_dim];
  ptx::Barrier query_full[consumers][buffers], query_empty[consumers][buffers];
  ptx::Barrier grad_out_full[consumers], grad_out_empty[consumers];
  ptx::Barrier key_full[QueryConfig::stages], key_empty[QueryConfig::stages];
  ptx::Barrier value_full[config.value_stages], value_empty[config.value_stages];
  ptx::Barrier tile_full[2], tile_empty[2];
  forward::Tile tile[2];

  static constexpr bool as_planned() {
    return sizeof(QueryShared) == config.shared_bytes() && sizeof(QueryShared) <= 232448;
  }

  static constexpr ptx::Part parts[] = {
      {"query", offsetof(QueryShared, query), sizeof(query[0])},
      {"grad_out", offsetof(QueryShared, grad_out), sizeof(grad_out[0])},
      {"key", offsetof(QueryShared, key), sizeof(key[0])},
      {"value", offsetof(QueryShared, value), sizeof(value[0])},
      {"query_full", offsetof(QueryShared, query_full), sizeof(ptx::Barrier)},
      {"query_empty", offsetof(QueryShared, query_empty), sizeof(ptx::Barrier)},
      {"grad_out_full", offsetof(QueryShared, grad_out_full), sizeof(ptx::Barrier)},
      {"grad_out_empty", offsetof(QueryShared, grad_out_empty), sizeof(ptx::Barrier)},
      {"key_full", offsetof(QueryShared, key_full), sizeof(ptx::Barrier)},
      {"key_empty", offsetof(QueryShared, key_empty), sizeof(ptx::Barrier)},
      {"value_full", offsetof(QueryShared, value_full), sizeof(ptx::Barrier)},
      {"value_empty", offsetof(QueryShared, value_empty), sizeof(ptx::Barrier)},
      {"tile_full", offsetof(QueryShared, tile_full), sizeof(ptx::Barrier)},
      {"tile_empty", offsetof(QueryShared, tile_empty), sizeof(ptx::Barrier)},
      {"tile", offsetof(QueryShared, tile), sizeof(forward::Tile)},
  };
};

}  // namespace tandem::internal::sm90::backward
