// The roles of the producer warpgroup (FA-3 Algorithm 3): one thread loads K, V and the rings of Q and dO by TMA, lines
// 4 to 8; one thread a consumer warpgroup adds its dQ tiles to the accumulator in global memory, lines 18 to 21.
#pragma once

#include "backends/sm90/backward/ordered.cuh"
#include "backends/sm90/backward/scheduler.cuh"
#include "backends/sm90/backward/shared.cuh"
#include "backends/sm90/tile/layout.hpp"
#include "backends/sm90/tile/ring.cuh"

namespace tandem::internal::sm90::backward {

template <Config config>
class Producer {
 public:
  TANDEM_DEVICE Producer(Shared<config>& shared, const Params& params)
      : shared_(shared), params_(params), tile_(shared.tile) {}

  /// The first warp's first lane. A query block's Q comes with LSE, its dO with D; Q is needed one block ahead.
  TANDEM_DEVICE void load(Steps steps) {
    load_keys(params_.key, shared_.key, shared_.key_full);
    Steps ahead = steps;
    if (ahead.left() > 0) load_query(ahead);
    load_keys(params_.value, shared_.value, shared_.value_full);
    for (; steps.left() > 0; steps.next()) {
      load_grad_out(steps);
      if (ahead.left() > 0) load_query(ahead);
    }
  }

 private:
  using Layout = ChunkLayout<config.head_dim>;

  template <class Element>
  TANDEM_DEVICE void load_keys(const ptx::TensorMap& map, Element* target, ptx::Barrier& full) {
    ptx::arrive_expect(full, Layout::bytes(config.tile_key()));
#pragma unroll
    for (int c = 0; c < Layout::chunks; ++c)
      ptx::tma_load(target + Layout::chunk_offset(config.tile_key(), c) / 2, map, full, c * Layout::chunk_columns,
                    tile_.key_row + tile_.first_key, tile_.head, tile_.key_batch, tile_.key_wrap);
  }

  TANDEM_DEVICE void load_query(Steps& steps) {
    const int s = query_.stage;
    ptx::wait(shared_.query_empty[s], query_.parity ^ 1);
    load_block(steps, params_.query, shared_.query[s], shared_.lse[s], 0, shared_.query_full[s]);
    query_.next();
    steps.next();
  }
  TANDEM_DEVICE void load_grad_out(const Steps& steps) {
    const int s = grad_out_.stage;
    ptx::wait(shared_.grad_out_empty[s], grad_out_.parity ^ 1);
    load_block(steps, params_.grad_out, shared_.grad_out[s], shared_.delta[s], 1, shared_.grad_out_full[s]);
    grad_out_.next();
  }
  template <class Element>
  TANDEM_DEVICE void load_block(const Steps& steps, const ptx::TensorMap& map, Element* rows, float* statistic,
                                int which, ptx::Barrier& full) {
    constexpr int bytes = config.tile_query * static_cast<int>(sizeof(float));
    const int64_t block =
        static_cast<int64_t>(steps.head()) * params_.blocks.per_head + tile_.first_block + steps.block();
    ptx::arrive_expect(full, Layout::bytes(config.tile_query) + bytes);
    ptx::bulk_load(statistic, params_.statistics + (2 * block + which) * config.tile_query, bytes, full);
#pragma unroll
    for (int c = 0; c < Layout::chunks; ++c)
      ptx::tma_load(rows + Layout::chunk_offset(config.tile_query, c) / 2, map, full, c * Layout::chunk_columns,
                    tile_.query_row + steps.block() * config.tile_query, steps.head(), tile_.query_batch,
                    tile_.query_wrap);
  }

  Shared<config>& shared_;
  const Params& params_;
  const Tile& tile_;
  RingPosition<Config::stages> query_, grad_out_;
};

template <Config config>
class Writer {
 public:
  TANDEM_DEVICE Writer(Shared<config>& shared, const Params& params, int part)
      : shared_(shared), params_(params), part_(part) {}

  /// One lane of one warp a consumer warpgroup.
  TANDEM_DEVICE void run(Steps steps) {
    for (; steps.left() > 0; steps.next()) {
      const int s = slot_.stage;
      ptx::wait(shared_.grad_query_full[s][part_], slot_.parity);
      const int64_t block =
          static_cast<int64_t>(steps.head()) * params_.blocks.per_head + shared_.tile.first_block + steps.block();
      if (params_.flags != nullptr) wait_rank(block, steps.block());
      ptx::bulk_reduce_add(params_.accumulator + (block * Config::consumers + part_) * config.part_floats(),
                           shared_.grad_query[s][part_], config.part_floats() * static_cast<int>(sizeof(float)));
      ptx::bulk_commit();
      if (params_.flags != nullptr) publish(block);
      release_slot();
    }
    ptx::bulk_wait<0>();
  }

 private:
  /// With two slots a slot is free when the reduction before the last has read it.
  TANDEM_DEVICE void release_slot() {
    ptx::bulk_wait_read<config.slots - 1>();
    slot_.next();
    if (config.slots == 1 || started_) ptx::arrive(shared_.grad_query_empty[slot_.stage][part_]);
    started_ = true;
  }

  TANDEM_DEVICE void wait_rank(int64_t block, int32_t in_sequence) {
    const int32_t rank = rank_of_tile<config.tile_query, config.tile_key()>(params_, shared_.tile, in_sequence);
    while (ptx::load_acquire(flag(block)) != rank) {
    }
    ptx::fence_proxy_async_all();
  }
  /// The additions must be complete, not just read from shared memory, before the next tile may add.
  TANDEM_DEVICE void publish(int64_t block) {
    ptx::bulk_wait<0>();
    ptx::fence_proxy_async_all();
    ptx::add_release(flag(block), 1);
  }
  TANDEM_DEVICE int32_t* flag(int64_t block) const { return params_.flags + block * Config::consumers + part_; }

  Shared<config>& shared_;
  const Params& params_;
  const int part_;
  bool started_ = false;
  RingPosition<config.slots> slot_;
};

}  // namespace tandem::internal::sm90::backward
