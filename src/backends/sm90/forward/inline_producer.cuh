// A kernel without warp specialisation: the first warp of the first consumer runs the producer's steps in line, between
// its own. Of the paper's ablation (FA-3 section 4.2, table 2); the library's kernels have a producer warpgroup.
#pragma once

#include "backends/sm90/forward/producer.cuh"

namespace tandem::internal::sm90::forward {

/// FA-3 Algorithm 1, lines 2 to 10, in pieces. A consumer calls next_tile() before each tile and next_block() before
/// each block's scores. Each call may wait for stages that the other consumers still read; they release them without
/// anything that this one is yet to do, since it has given every turn up to the block before.
template <Config config>
class InlineProducer : Producer<config> {
  using Base = Producer<config>;

 public:
  TANDEM_DEVICE InlineProducer(Shared<config>& shared, const Params& params, bool is_this_warp)
      : Base(shared, params), is_this_warp_(is_this_warp), scheduler_(params) {
    static_assert(config.stages > 1, "the keys of the next block are loaded while this one's are read");
    static_assert(config.overlap != Overlap::three_stage, "it reads values a step later than two stages allow for");
    if (is_this_warp_) this->prefetch();
  }

  /// Announces a tile, and loads its query and first keys.
  TANDEM_DEVICE void next_tile() {
    if (!is_this_warp_) return;
    const Tile& tile = *this->announce(scheduler_.next());
    if (tile.row < 0) return;
    this->find_keys(tile);
    block_ = tile.visit.end - 1;
    last_ = tile.visit.begin;
    this->load_key(block_);
    this->load_query(tile);
  }
  /// Loads the values of the tile's next block and the keys of the block after it.
  TANDEM_DEVICE void next_block() {
    if (!is_this_warp_) return;
    if (block_ > last_) this->load_key(block_ - 1);
    this->load_value(block_);
    --block_;
  }

 private:
  const bool is_this_warp_;
  TileScheduler<config.tile_query()> scheduler_;
  int block_ = 0, last_ = 0;
};

/// With warp specialisation a consumer loads nothing.
template <Config config>
struct NoLoads {
  TANDEM_DEVICE NoLoads(Shared<config>&, const Params&, bool) {}
  TANDEM_DEVICE void next_tile() {}
  TANDEM_DEVICE void next_block() {}
};

template <Config config, bool specialised = config.warp_specialised>
struct LoadsOf {
  using type = NoLoads<config>;
};
template <Config config>
struct LoadsOf<config, false> {
  using type = InlineProducer<config>;
};
/// What a consumer loads.
template <Config config>
using Loads = typename LoadsOf<config>::type;

}  // namespace tandem::internal::sm90::forward
