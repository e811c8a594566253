// The roles of the producer warpgroup (FA-3 Algorithm 3): a warp finds the block's tiles; a thread of another loads K,
// V and the rings of Q and dO by TMA, lines 4 to 8; a thread of each of two warps takes the consumers' tiles from
// shared memory to global memory, adding those of dQ to the accumulator, lines 18 to 22.
#pragma once

#include "backends/sm90/backward/ordered.cuh"
#include "backends/sm90/backward/scheduler.cuh"
#include "backends/sm90/backward/shared.cuh"
#include "backends/sm90/tile/layout.hpp"
#include "backends/sm90/tile/ring.cuh"

namespace tandem::internal::sm90::backward {

/// All lanes of one warp: announces tiles. The next is taken when the loads of this one are on their way: two blocks of
/// queries are then still to be worked on, so that nobody waits for it; and tiles begin in the order of their numbers,
/// on which Order and the balance at the end depend. The last announcement says that there are no more.
template <Config config>
TANDEM_DEVICE void announce_tiles(Shared<config>& shared, const Params& params) {
  TileScheduler<config.tile_key(), KeySide, Params> scheduler(params);
  bool more = true;
  for (unsigned i = 0; more; ++i) {
    if (i > 0) ptx::wait(shared.tile_loaded, static_cast<int>(i & 1) ^ 1);
    const Position at = scheduler.next();
    more = at.tile >= 0;
    ptx::wait(shared.tile_empty[i % 2], static_cast<int>(i / 2 & 1) ^ 1);
    if ((ptx::thread_index() & 31) == 0) {
      describe<config.tile_query, config.tile_key()>(params, at, shared.tile[i % 2]);
      ptx::arrive(shared.tile_full[i % 2]);
    }
  }
}

/// Where a step's query block lies in the workspace.
TANDEM_DEVICE int64_t place_of(const Params& params, const Tile& tile, const Steps& steps) {
  return static_cast<int64_t>(steps.head()) * params.blocks.per_head + tile.first_block + steps.block();
}

template <Config config>
class Producer {
 public:
  TANDEM_DEVICE Producer(Shared<config>& shared, const Params& params) : shared_(shared), params_(params) {}

  /// One thread.
  TANDEM_DEVICE void run() {
    for (RingPosition<2> slot;; slot.next()) {
      ptx::wait(shared_.tile_full[slot.stage], slot.parity);
      tile_ = &shared_.tile[slot.stage];
      if (tile_->first_key < 0) return;
      load(Steps(*tile_, params_.group));
      ptx::arrive(shared_.tile_loaded);
      ptx::arrive(shared_.tile_empty[slot.stage]);
    }
  }

 private:
  using Layout = ChunkLayout<config.head_dim>;

  /// A query block's Q comes with LSE, its dO with D; Q is needed one block ahead. The last tile's V is free before its
  /// K, which dQ needs; in the first tile K is what the first product waits for.
  TANDEM_DEVICE void load(Steps steps) {
    Steps ahead = steps;
    if (first_) load_key();
    if (ahead.left() > 0) load_query(ahead);
    if (first_) load_value();
    if (steps.left() > 0) load_grad_out(steps);
    // With Division::gradients K is free first, and S needs it first.
    constexpr bool key_first = config.division == Division::gradients;
    if (!first_) key_first ? load_key() : load_value();
    if (ahead.left() > 0 && !key_first) load_query(ahead);
    if (!first_) key_first ? load_value() : load_key();
    if (ahead.left() > 0 && key_first) load_query(ahead);
    first_ = false;
    while (steps.left() > 0) {
      load_grad_out(steps);
      if (ahead.left() > 0) load_query(ahead);
    }
    keys_ ^= 1;
  }

  TANDEM_DEVICE void load_key() {
    ptx::wait(shared_.key_empty, keys_ ^ 1);
    load_keys(params_.key, shared_.key, shared_.key_full);
  }
  TANDEM_DEVICE void load_value() {
    ptx::wait(shared_.value_empty, keys_ ^ 1);
    load_keys(params_.value, shared_.value, shared_.value_full);
  }
  template <class Element>
  TANDEM_DEVICE void load_keys(const ptx::TensorMap& map, Element* target, ptx::Barrier& full) {
    ptx::arrive_expect(full, Layout::bytes(config.tile_key()));
#pragma unroll
    for (int c = 0; c < Layout::chunks; ++c)
      ptx::tma_load(target + Layout::chunk_offset(config.tile_key(), c) / 2, map, full, c * Layout::chunk_columns,
                    tile_->key_row + tile_->first_key, tile_->head, tile_->key_batch, tile_->key_wrap);
  }

  TANDEM_DEVICE void load_query(Steps& steps) {
    const int s = query_.stage;
    ptx::wait(shared_.query_empty[s], query_.parity ^ 1);
    load_block(steps, params_.query, shared_.query[s], shared_.lse[s], 0, shared_.query_full[s]);
    query_.next();
  }
  TANDEM_DEVICE void load_grad_out(Steps& steps) {
    const int s = grad_out_.stage;
    ptx::wait(shared_.grad_out_empty[s], grad_out_.parity ^ 1);
    load_block(steps, params_.grad_out, shared_.grad_out[s], shared_.delta[s], 1, shared_.grad_out_full[s]);
    grad_out_.next();
  }
  template <class Element>
  TANDEM_DEVICE void load_block(Steps& steps, const ptx::TensorMap& map, Element* rows, float* statistic, int which,
                                ptx::Barrier& full) {
    constexpr int bytes = config.tile_query * static_cast<int>(sizeof(float));
    const int64_t place = place_of(params_, *tile_, steps);
    ptx::arrive_expect(full, Layout::bytes(config.tile_query) + bytes);
    ptx::bulk_load(statistic, params_.statistics + (2 * place + which) * config.tile_query, bytes, full);
#pragma unroll
    for (int c = 0; c < Layout::chunks; ++c)
      ptx::tma_load(rows + Layout::chunk_offset(config.tile_query, c) / 2, map, full, c * Layout::chunk_columns,
                    tile_->query_row + steps.block() * config.tile_query, steps.head(), tile_->query_batch,
                    tile_->query_wrap);
    steps.next();
  }

  Shared<config>& shared_;
  const Params& params_;
  const Tile* tile_ = nullptr;
  bool first_ = true;
  int keys_ = 0;  // parity of K's and V's barriers
  RingPosition<Config::stages> query_, grad_out_;
};

/// What leaves the consumer warpgroups in a tile: their parts of dQ, dV before the last of them, and dK. With two slots
/// two threads take turns: while one waits until its additions are complete, so that it may announce them, the other
/// one's are on their way. With one slot each serves a warpgroup, which would else wait for the other one's part.
template <Config config>
class Writer {
  static_assert(config.slots == 1 || config.slots == 2);
  static constexpr bool takes_turns = config.slots == 2;

 public:
  TANDEM_DEVICE Writer(Shared<config>& shared, const Params& params, int thread)
      : shared_(shared), params_(params), order_(params), thread_(thread) {}

  /// One thread of each of two warps.
  TANDEM_DEVICE void run() {
    for (RingPosition<2> slot;; slot.next()) {
      ptx::wait(shared_.tile_full[slot.stage], slot.parity);
      tile_ = &shared_.tile[slot.stage];
      if (tile_->first_key < 0) break;
      Steps steps(*tile_, params_.group);
      for (; steps.left() > 1; steps.next()) add_grad_query(steps);
      store_keys(params_.grad_value);
      if (steps.left() > 0) add_grad_query(steps);
      store_keys(params_.grad_key);
      ptx::arrive(shared_.tile_empty[slot.stage]);
    }
  }

 private:
  using Layout = ChunkLayout<config.head_dim>;

  TANDEM_DEVICE void add_grad_query(const Steps& steps) {
    if (!next()) return;
    const int64_t place = place_of(params_, *tile_, steps);
    order_.wait(*tile_, steps.block(), place);
    const bool stores = Order<config>::stores(*tile_, steps.block());
    if (!stores) ptx::fence_proxy_async_global();  // behind what was waited for
    send([&](int part, const float* source) {
      float* target = params_.accumulator + (place * Config::consumers + part) * config.part_floats();
      constexpr int bytes = config.part_floats() * static_cast<int>(sizeof(float));
      if (stores)
        ptx::bulk_store(target, source, bytes);
      else
        ptx::bulk_reduce_add(target, source, bytes);
    });
    if (!order_.awaited(*tile_, steps.block())) return;
    // Complete, not just read from shared memory; that includes the fence between the proxies.
    ptx::bulk_wait<0>();
    order_.announce(place);
  }
  /// dK or dV; TMA clips the rows to the sequence.
  TANDEM_DEVICE void store_keys(const ptx::TensorMap& map) {
    if (!next()) return;
    send([&](int part, const float* source) {
      const uint8_t* rows = reinterpret_cast<const uint8_t*>(source);
#pragma unroll
      for (int c = 0; c < Layout::chunks; ++c)
        ptx::tma_store(map, rows + Layout::chunk_offset(64, c), c * Layout::chunk_columns,
                       tile_->out_row + tile_->first_key + 64 * part, tile_->head, tile_->out_batch, tile_->key_wrap);
    });
  }

  /// Counts what leaves; whether this thread sends of it.
  TANDEM_DEVICE bool next() {
    ++number_;
    return !takes_turns || static_cast<int>(number_ & 1) == thread_;
  }
  /// Copies a warpgroup's part when it is there, and gives the slots back.
  template <class Copy>
  TANDEM_DEVICE void send(const Copy& copy) {
    const unsigned slot = number_ % config.slots;
    const int parity = static_cast<int>(number_ / config.slots & 1);
    const int begin = takes_turns ? 0 : thread_, end = takes_turns ? Config::consumers : thread_ + 1;
    for (int part = begin; part < end; ++part) {
      ptx::wait(shared_.slot_full[slot][part], parity);
      copy(part, shared_.slot[slot][part]);
      ptx::bulk_commit();
    }
    ptx::bulk_wait_read<0>();  // at the last one also because shared memory must outlive what reads it
    for (int part = begin; part < end; ++part) ptx::arrive(shared_.slot_empty[slot][part]);
  }

  Shared<config>& shared_;
  const Params& params_;
  const Order<config> order_;
  const int thread_;
  const Tile* tile_ = nullptr;
  unsigned number_ = ~0u;  // of what leaves now
};

}  // namespace tandem::internal::sm90::backward
