// The backward kernel's shared memory: one visible struct, whose sizeof is the launch size.
#pragma once

#include <cstddef>

#include "backends/sm90/backward/config.hpp"
#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/forward/shared.cuh"
#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90::backward {

template <Config config>
struct Shared;

/// A thread's part of a wgmma operand that lies in registers.
struct alignas(16) Fragment {
  uint32_t words[4];
};

/// Each warpgroup owns 64 keys.
template <Config config>
requires(config.division == Division::keys) struct alignas(1024) Shared<config> {
  using Element = typename forward::ElementOf<config.dtype>::type;
  static constexpr int stages = Config::stages, consumers = Config::consumers;

  Element key[config.tile_key() * config.head_dim];
  Element value[config.tile_key() * config.head_dim];
  Element query[stages][config.tile_query * config.head_dim];
  Element grad_out[stages][config.tile_query * config.head_dim];
  Element grad_scores[stages][config.tile_query * config.tile_key()];  // dS: rows are queries
  // Tiles on their way out: dQ in the order of wgmma's fragments, or 64 rows of dK or dV.
  float slot[config.slots][consumers][config.part_floats()];
  float lse[stages][config.tile_query], delta[stages][config.tile_query];
  ptx::Barrier key_full, key_empty, value_full, value_empty;
  ptx::Barrier query_full[stages], query_empty[stages];
  ptx::Barrier grad_out_full[stages], grad_out_empty[stages];
  ptx::Barrier grad_scores_full[stages], grad_scores_empty[stages];
  ptx::Barrier slot_full[config.slots][consumers], slot_empty[config.slots][consumers];
  ptx::Barrier tile_full[2], tile_empty[2], tile_loaded;
  Tile tile[2];

  static constexpr bool as_planned() { return sizeof(Shared) == config.shared_bytes() && sizeof(Shared) <= 232448; }

  static constexpr ptx::Part parts[] = {
      {"key", offsetof(Shared, key), sizeof(key)},
      {"value", offsetof(Shared, value), sizeof(value)},
      {"query", offsetof(Shared, query), sizeof(query[0])},
      {"grad_out", offsetof(Shared, grad_out), sizeof(grad_out[0])},
      {"grad_scores", offsetof(Shared, grad_scores), sizeof(grad_scores[0])},
      {"slot", offsetof(Shared, slot), sizeof(slot[0])},
      {"lse", offsetof(Shared, lse), sizeof(lse[0])},
      {"delta", offsetof(Shared, delta), sizeof(delta[0])},
      {"key_full", offsetof(Shared, key_full), sizeof(ptx::Barrier)},
      {"key_empty", offsetof(Shared, key_empty), sizeof(ptx::Barrier)},
      {"value_full", offsetof(Shared, value_full), sizeof(ptx::Barrier)},
      {"value_empty", offsetof(Shared, value_empty), sizeof(ptx::Barrier)},
      {"query_full", offsetof(Shared, query_full), sizeof(ptx::Barrier)},
      {"query_empty", offsetof(Shared, query_empty), sizeof(ptx::Barrier)},
      {"grad_out_full", offsetof(Shared, grad_out_full), sizeof(ptx::Barrier)},
      {"grad_out_empty", offsetof(Shared, grad_out_empty), sizeof(ptx::Barrier)},
      {"grad_scores_full", offsetof(Shared, grad_scores_full), sizeof(ptx::Barrier)},
      {"grad_scores_empty", offsetof(Shared, grad_scores_empty), sizeof(ptx::Barrier)},
      {"slot_full", offsetof(Shared, slot_full), sizeof(ptx::Barrier)},
      {"slot_empty", offsetof(Shared, slot_empty), sizeof(ptx::Barrier)},
      {"tile_full", offsetof(Shared, tile_full), sizeof(ptx::Barrier)},
      {"tile_empty", offsetof(Shared, tile_empty), sizeof(ptx::Barrier)},
      {"tile_loaded", offsetof(Shared, tile_loaded), sizeof(ptx::Barrier)},
      {"tile", offsetof(Shared, tile), sizeof(Tile)},
  };
};

/// One warpgroup adds up dV, the other dK.
template <Config config>
requires(config.division == Division::gradients) struct alignas(1024) Shared<config> {
  using Element = typename forward::ElementOf<config.dtype>::type;
  static constexpr int stages = Config::stages;

  Element key[config.tile_key() * config.head_dim];    // and dV on its way out
  Element value[config.tile_key() * config.head_dim];  // and dK
  Element query[stages][config.tile_query * config.head_dim];
  Element grad_out[stages][config.tile_query * config.head_dim];
  Fragment weights[stages][config.tile_query / 16][128];  // P^T as the threads of a warpgroup hold it
  float lse[stages][config.tile_query], delta[stages][config.tile_query];
  ptx::Barrier key_full, key_empty, value_full, value_empty;
  ptx::Barrier query_full[stages], query_empty[stages];
  ptx::Barrier grad_out_full[stages], grad_out_empty[stages];
  ptx::Barrier weights_full[stages], weights_empty[stages];
  ptx::Barrier tile_full[2], tile_empty[2], tile_loaded;
  Tile tile[2];

  static constexpr bool as_planned() { return sizeof(Shared) == config.shared_bytes() && sizeof(Shared) <= 232448; }

  static constexpr ptx::Part parts[] = {
      {"key", offsetof(Shared, key), sizeof(key)},
      {"value", offsetof(Shared, value), sizeof(value)},
      {"query", offsetof(Shared, query), sizeof(query[0])},
      {"grad_out", offsetof(Shared, grad_out), sizeof(grad_out[0])},
      {"weights", offsetof(Shared, weights), sizeof(weights[0])},
      {"lse", offsetof(Shared, lse), sizeof(lse[0])},
      {"delta", offsetof(Shared, delta), sizeof(delta[0])},
      {"key_full", offsetof(Shared, key_full), sizeof(ptx::Barrier)},
      {"key_empty", offsetof(Shared, key_empty), sizeof(ptx::Barrier)},
      {"value_full", offsetof(Shared, value_full), sizeof(ptx::Barrier)},
      {"value_empty", offsetof(Shared, value_empty), sizeof(ptx::Barrier)},
      {"query_full", offsetof(Shared, query_full), sizeof(ptx::Barrier)},
      {"query_empty", offsetof(Shared, query_empty), sizeof(ptx::Barrier)},
      {"grad_out_full", offsetof(Shared, grad_out_full), sizeof(ptx::Barrier)},
      {"grad_out_empty", offsetof(Shared, grad_out_empty), sizeof(ptx::Barrier)},
      {"weights_full", offsetof(Shared, weights_full), sizeof(ptx::Barrier)},
      {"weights_empty", offsetof(Shared, weights_empty), sizeof(ptx::Barrier)},
      {"tile_full", offsetof(Shared, tile_full), sizeof(ptx::Barrier)},
      {"tile_empty", offsetof(Shared, tile_empty), sizeof(ptx::Barrier)},
      {"tile_loaded", offsetof(Shared, tile_loaded), sizeof(ptx::Barrier)},
      {"tile", offsetof(Shared, tile), sizeof(Tile)},
  };
};

}  // namespace tandem::internal::sm90::backward
