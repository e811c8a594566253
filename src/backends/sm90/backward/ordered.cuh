// In which order tiles of keys add to a query block's dQ: the accumulator isn't cleared, so the tile that comes first
// (of the first keys, or upwards of the last) stores its part and the others wait for that; in deterministic mode each
// waits for all before it.
#pragma once

#include "backends/sm90/backward/config.hpp"
#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/backward/visits.hpp"
#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90::backward {

/// For one thread. A tile only waits for tiles that are launched before it: those of earlier keys or, where tiles go
/// upwards, of later ones. Under a causal mask these come by a step before it if all start at once.
template <Config config>
class Order {
 public:
  /// Of one tile's part: where each warpgroup has a thread of its own for it, both announce.
  static constexpr int announcements = config.slots == 1 ? Config::consumers : 1;

  TANDEM_DEVICE explicit Order(const Params& params) : params_(params) {}

  /// Whether the tile stores its part of that block of the sequence.
  static TANDEM_DEVICE bool stores(const Tile& tile, int32_t block) {
    return block >= tile.first.begin && block < tile.first.end;
  }

  /// Until it is the tile's turn. `place`: the block's in the workspace.
  TANDEM_DEVICE void wait(const Tile& tile, int32_t block, int64_t place) const {
    if (stores(tile, block)) return;
    int32_t before = 1;
    if (params_.deterministic)
      before = tiles_before<config.tile_query, config.tile_key()>(
          {tile.queries, tile.keys, tile.diagonal, params_.window}, tile.first_key / config.tile_key(), block,
          tile.direction > 0);
    while (ptx::load_acquire(flag(place)) < before * announcements) {
    }
  }
  /// Whether anybody waits for the tile's part, so that it must be announced.
  TANDEM_DEVICE bool awaited(const Tile& tile, int32_t block) const {
    return params_.deterministic || stores(tile, block);
  }
  TANDEM_DEVICE void announce(int64_t place) const { ptx::add_release(flag(place), 1); }

 private:
  TANDEM_DEVICE int32_t* flag(int64_t place) const { return params_.flags + place; }

  const Params& params_;
};

}  // namespace tandem::internal::sm90::backward
