// Which query blocks a tile of keys visits, and in which order tiles come to a query block: that of their keys, or
// `upwards` the other one. For host, GPU and emulator.
#pragma once

#include "common/mask.hpp"

namespace tandem::internal::sm90::backward {

/// One sequence's rows that count, and who sees whom.
struct Scope {
  int32_t queries, keys, diagonal;
  Window window;
};

/// The query blocks that see the tile's keys. Key j sees, so to say, the queries from j - diagonal - right to
/// j - diagonal + left. The last block counts as whole: LSE hides its rows beyond the queries.
template <int tile_query, int tile_key>
TANDEM_SHARED_FUNCTION constexpr KeyBlocks visited_blocks(const Scope& s, int32_t tile) {
  const int32_t first_key = tile * tile_key, last = least(first_key + tile_key, s.keys) - 1;
  if (tile < 0 || last < first_key || s.queries == 0) return {{0, 0}, {0, 0}};
  KeyBlocks seen = key_blocks(first_key, last, ceil_divide(s.queries, tile_query) * tile_query, -s.diagonal,
                              {s.window.right, s.window.left}, tile_query);
  if (last - first_key + 1 < tile_key) seen.full = {seen.visit.begin, seen.visit.begin};
  return seen;
}

/// The query blocks that the tile is the first to visit.
template <int tile_query, int tile_key>
TANDEM_SHARED_FUNCTION constexpr Range first_visited(const Scope& s, int32_t tile, bool upwards) {
  const Range own = visited_blocks<tile_query, tile_key>(s, tile).visit;
  const Range before = visited_blocks<tile_query, tile_key>(s, upwards ? tile + 1 : tile - 1).visit;
  if (before.begin == before.end) return own;
  return upwards ? Range{own.begin, least(own.end, before.begin)} : Range{greatest(own.begin, before.end), own.end};
}

/// How many of the tiles that visit the query block come before this one.
template <int tile_query, int tile_key>
TANDEM_SHARED_FUNCTION constexpr int32_t tiles_before(const Scope& s, int32_t tile, int32_t block, bool upwards) {
  const int32_t first = block * tile_query, queries = ceil_divide(s.queries, tile_query) * tile_query;
  const KeyBlocks tiles =
      key_blocks(first, least(first + tile_query, queries) - 1, s.keys, s.diagonal, s.window, tile_key);
  return upwards ? tiles.visit.end - 1 - tile : tile - tiles.visit.begin;
}

}  // namespace tandem::internal::sm90::backward
