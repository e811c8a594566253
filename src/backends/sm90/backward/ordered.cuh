// In which order tiles of keys add to a query block's dQ: the accumulator isn't cleared, so the tile of the first keys
// stores its part and the others wait for that; in deterministic mode each waits for all before it.
#pragma once

#include "backends/sm90/backward/config.hpp"
#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/backward/visits.hpp"
#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90::backward {

/// For one thread. A tile only waits for tiles of earlier keys, which are launched before it and, since tiles visit
/// their query blocks from the last to the first, come by before it if all start at once.
template <Config config>
class Order {
 public:
  TANDEM_DEVICE Order(const Params& params, int part) : params_(params), part_(part) {}

  /// Whether the tile stores its part of that block of the sequence.
  static TANDEM_DEVICE bool stores(const Tile& tile, int32_t block) { return block >= tile.first_from; }

  /// How many announcements there must be before the tile's turn.
  TANDEM_DEVICE int32_t before(const Tile& tile, int32_t block) const {
    if (stores(tile, block)) return 0;
    if (!params_.deterministic) return 1;
    return tiles_before<config.tile_query, config.tile_key()>({tile.queries, tile.keys, tile.diagonal, params_.window},
                                                              tile.first_key / config.tile_key(), block);
  }
  /// One look. `place`: the block's in the workspace.
  TANDEM_DEVICE bool come(int32_t before, int64_t place) const {
    return before == 0 || ptx::load_acquire(flag(place)) >= before;
  }
  /// Whether anybody waits for the tile's part, so that it must be announced.
  TANDEM_DEVICE bool awaited(const Tile& tile, int32_t block) const {
    return params_.deterministic || stores(tile, block);
  }
  TANDEM_DEVICE void announce(int64_t place) const { ptx::add_release(flag(place), 1); }

 private:
  TANDEM_DEVICE int32_t* flag(int64_t place) const { return params_.flags + place * Config::consumers + part_; }

  const Params& params_;
  const int part_;
};

}  // namespace tandem::internal::sm90::backward
