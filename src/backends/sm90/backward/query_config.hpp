// What a kernel of dQ alone is compiled for. Plain C++ for host and device.
#pragma once

#include "common/mask.hpp"
#include "tandem/tandem.hpp"

namespace tandem::internal::sm90::backward {

struct QueryConfig {
  Dtype dtype = Dtype::bf16;
  int head_dim = 256;    // of values too
  int value_stages = 1;  // of the ring of V, which is read once a step; K is read again a step later, for dQ

  static constexpr int consumers = 2;  // warpgroups of 64 query rows each
  static constexpr int tile_key = 64;
  static constexpr int stages = 2, query_buffers = 1, tile_slots = 2;
  static constexpr bool pingpong = false;   // turns at the tensor cores: no gain (docs/performance-log.md)
  static constexpr bool ascending = false;  // the order of blocks, forward/params.hpp
  static constexpr int bodies = 2;  // of a step: masked or not (ptxas wants no branch between products in flight)
  static constexpr int threads = 128 * (consumers + 1);
  static constexpr int registers_producer = 24, registers_consumer = 240;

  static constexpr int tile_query() { return 64 * consumers; }
  /// sizeof(QueryShared<config>), which host code can't see; query_shared.cuh holds the two together.
  constexpr int shared_bytes() const {
    const int rows = 2 * tile_query() * head_dim * 2, ring = (stages + value_stages) * tile_key * head_dim * 2;
    const int barriers = 8 * (4 * consumers + 2 * stages + 2 * value_stages + 4), tiles = 2 * 128;
    return ceil_divide(rows + ring + ceil_divide(barriers, 16) * 16 + tiles, 1024) * 1024;
  }
  friend constexpr bool operator==(const QueryConfig&, const QueryConfig&) = default;
};

struct QueryVariant {
  const char* name;
  QueryConfig config;
};

}  // namespace tandem::internal::sm90::backward
