// What a backward kernel is compiled for: tile sizes and the order of events. Plain C++ for host and device.
#pragma once

#include "common/mask.hpp"
#include "tandem/tandem.hpp"

namespace tandem::internal::sm90::backward {

/// How the consumer warpgroups share out a tile's work. keys: each owns 64 keys, and all of dK's and dV's columns.
/// gradients: one adds up dV and the other dK, each of the tile's 64 keys and all columns, which are too many beyond d
/// 128 for one to hold both; dQ is left to a kernel of its own (query_config.hpp).
enum class Division { keys, gradients };

struct Config {
  Dtype dtype = Dtype::bf16;
  Division division = Division::keys;
  int head_dim = 128;  // of values too
  int tile_query = 64;
  int slots = 2;            // of tiles on their way to global memory
  bool early_value = true;  // dV is issued before dS is formed, so that it runs under that arithmetic
  bool turns = true;        // the warpgroups take turns at the exponentials

  static constexpr int consumers = 2;  // warpgroups of 64 keys each
  static constexpr int stages = 2;     // of Q, of dO and of dS
  static constexpr int threads = 128 * (consumers + 1);
  static constexpr int registers_producer = 24, registers_consumer = 240;

  constexpr int tile_key() const { return division == Division::keys ? 64 * consumers : 64; }
  /// Division::keys: dQ^T = K^T dS^T of one warpgroup, 64 columns of d by this many queries. At d 64 the warpgroups
  /// share out the queries, at d 128 the columns.
  constexpr int grad_queries() const { return tile_query * head_dim / 128; }
  /// Floats of a dQ tile that one warpgroup adds.
  constexpr int part_floats() const { return 64 * grad_queries(); }
  /// sizeof(Shared<config>), which host code can't see; shared.cuh holds the two together.
  constexpr int shared_bytes() const {
    const bool by_keys = division == Division::keys;
    const int keys = 2 * tile_key() * head_dim * 2, ring = 2 * stages * tile_query * head_dim * 2;
    const int scores = stages * tile_query * tile_key() * 2;
    const int parts = by_keys ? slots * consumers * part_floats() * 4 : 0;
    const int statistics = 2 * stages * tile_query * 4, tiles = 2 * 96;
    const int barriers = 8 * (9 + 6 * stages + (by_keys ? 2 * consumers * slots : 0));
    return ceil_divide(keys + ring + scores + parts + statistics + ceil_divide(barriers, 16) * 16 + tiles, 1024) * 1024;
  }
  friend constexpr bool operator==(const Config&, const Config&) = default;
};

struct Variant {
  const char* name;
  Config config;
  bool deterministic = false;  // takes the deterministic mode's problems from the variant of these dims
};

}  // namespace tandem::internal::sm90::backward
