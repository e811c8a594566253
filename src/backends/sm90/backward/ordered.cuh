// Deterministic mode: in which order tiles of keys add to a query block's dQ.
#pragma once

#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90::backward {

/// Of the tiles that add to a query block, the one with the last keys comes first, since it reaches the block first if
/// all start at once. It is also launched first, so that no block waits for a later one.
template <int tile_query, int tile_key>
TANDEM_DEVICE int32_t rank_of_tile(const Params& params, const Tile& tile, int32_t block) {
  const int32_t first = block * tile_query, queries = ceil_divide(tile.queries, tile_query) * tile_query;
  const Range tiles =
      key_blocks(first, least(first + tile_query, queries) - 1, tile.keys, tile.diagonal, params.window, tile_key)
          .visit;
  return tiles.end - 1 - tile.first_key / tile_key;
}

}  // namespace tandem::internal::sm90::backward
