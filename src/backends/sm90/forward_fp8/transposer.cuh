// Values that lie in rows, brought into the order of packed ones (FA-3 section 3.3): 8-bit wgmma takes operands whose
// keys are contiguous alone. TMA fills a raw tile; warps of the producer warpgroup transpose it into a stage of the
// ring.
#pragma once

#include "backends/sm90/forward_fp8/shared.cuh"
#include "backends/sm90/tile/layout.hpp"
#include "backends/sm90/tile/ring.cuh"

namespace tandem::internal::sm90::forward_fp8 {

template <Config config>
class Transposer {
  using RawLayout = ChunkLayout<config.head_dim, 1>;

 public:
  /// `warp`: which of Config::transposers.
  TANDEM_DEVICE Transposer(Shared<config>& shared, int warp)
      : shared_(shared),
        warp_(warp),
        lane_(ptx::thread_index() & 31),
        first_(lane_ < 16 ? 0x6420 : 0x7531),
        second_(lane_ < 16 ? 0x7531 : 0x6420),
        lane_target_(target(lane_)) {}

  TANDEM_DEVICE void run() {
    while (true) {
      ptx::wait(shared_.tile_full[slot_.stage], slot_.parity);
      const Tile& tile = shared_.tile[slot_.stage];
      if (tile.row < 0) break;
      const int blocks = tile.visit.end - tile.visit.begin;
      ptx::sync_warp();  // every lane has read the tile
      if (lane_ == 0) ptx::arrive(shared_.tile_empty[slot_.stage]);
      slot_.next();
      for (int i = 0; i < blocks; ++i) transpose_tile();
    }
  }

 private:
  static constexpr int chunk_pieces = RawLayout::row_bytes / 16;

  TANDEM_DEVICE void transpose_tile() {
    ptx::wait(shared_.raw.full[raw_.stage], raw_.parity);
    ptx::wait(shared_.value_empty[value_.stage], value_.parity ^ 1);
    // A warp has one half of the channels, 16 of them at a time.
#pragma unroll 1
    for (int piece = warp_; piece < config.head_dim / 16; piece += Config::transposers)
      transpose(shared_.raw.tile[raw_.stage] + RawLayout::chunk_offset(config.tile_key, piece / chunk_pieces) +
                    swizzled_offset(lane_, piece % chunk_pieces, RawLayout::row_bytes),
                shared_.value[value_.stage] + lane_target_ + 256 * piece);
    ptx::fence_proxy_async();
    ptx::sync_warp();
    if (lane_ == 0) {
      ptx::arrive(shared_.value_full[value_.stage]);
      ptx::arrive(shared_.raw.empty[raw_.stage]);
    }
    value_.next();
    raw_.next();
  }

  /// 16 channels of all keys, 32 keys at a time; the swizzle repeats after as many rows. The load transposes pairs of
  /// channels; the permutation parts even and odd ones, and leaves keys in the order of a group. Of the two resulting
  /// rows a store takes one kind from the lower half of the channels and the other from the upper, so that its eight
  /// rows lie in different banks.
  TANDEM_DEVICE void transpose(const uint8_t* from, uint8_t* to) const {
#pragma unroll
    for (int keys = 0; keys < config.tile_key; keys += 32) {
      uint32_t a, b, c, d;
      ptx::load_matrices_transposed(from + keys * RawLayout::row_bytes, a, b, c, d);
      ptx::store_matrices(to + keys * config.head_dim, ptx::permute_bytes(a, b, first_),
                          ptx::permute_bytes(a, b, second_), ptx::permute_bytes(c, d, first_),
                          ptx::permute_bytes(c, d, second_));
    }
  }
  /// Where the row of a matrix that this lane addresses goes: its channel, and the second group of keys.
  static TANDEM_DEVICE int target(int lane) {
    const int row = lane & 7, matrix = lane >> 3;
    return (matrix >> 1) * 16 * config.head_dim + 16 * (2 * row + ((row >> 2) ^ (matrix & 1)));
  }

  Shared<config>& shared_;
  const int warp_, lane_;
  const uint32_t first_, second_;  // even and odd channels, by the half of the channels
  const int lane_target_;
  RingPosition<config.stages> value_;
  RingPosition<config.raw_buffers()> raw_;
  RingPosition<config.tile_slots> slot_;
};

}  // namespace tandem::internal::sm90::forward_fp8
