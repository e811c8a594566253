// What an 8-bit forward kernel is compiled for: the only choices that change its inner loop. Plain C++ for host and
// device.
#pragma once

#include <limits>

#include "common/mask.hpp"
#include "tandem/tandem.hpp"

namespace tandem::internal::sm90::forward_fp8 {

struct Config {
  Dtype dtype = Dtype::e4m3;  // of queries and keys: e4m3 or int8; weights and values are e4m3
  int head_dim = 128;         // of queries, keys and values
  int consumers = 2;          // warpgroups of 64 query rows each: 2 to 4
  int tile_key = 128;
  ValueLayout value_layout = ValueLayout::packed;
  int query_buffers = 2;
  // Tiles that the scheduler may describe ahead: finding one takes longer than working on a short one.
  int tile_slots = 4;
  bool ascending = true;  // the order of blocks, forward/params.hpp
  // Copies of a step's code: one for each stage, masked or not, so that addresses and descriptors are constants (4);
  // masked or not (2); or one. Short tiles pass all of a kernel's code, and wait for what isn't in the cache.
  int bodies = 4;
  // In a turn at the tensor cores O of one block comes before S of the next; else after it.
  bool output_first = false;
  // Else the turn is given before O's last product, so that the next consumer's first one follows without a gap.
  bool late_turn = false;
  // Partial sums of O can be promoted to float32 sums in shared memory; else only the output is staged there.
  bool promotes = true;

  static constexpr int stages = 2;
  static constexpr bool pingpong = true;
  static constexpr int transposers = 2;   // warps of the producer warpgroup
  static constexpr int stored_rows = 16;  // of the output, a warp's: the box of its tensor map

  constexpr bool transposes() const { return value_layout == ValueLayout::rows; }
  /// Values as they lie in memory, on their way to be transposed: buffers of a tile.
  constexpr int raw_buffers() const { return transposes() ? (head_dim >= 192 ? 1 : 2) : 0; }
  constexpr int tile_query() const { return 64 * consumers; }
  constexpr int threads() const { return 128 * (consumers + 1); }
  // 65,536 an SM, shared by the warpgroups (forward/config.hpp); four consumers get 112 each.
  constexpr int registers_producer() const { return consumers == 2 ? 40 : 32; }
  constexpr int registers_consumer() const { return consumers == 2 ? 232 : consumers == 3 ? 160 : 112; }
  /// Bytes of a warp's float32 sums, or of its staged output.
  constexpr int output_bytes() const { return stored_rows * head_dim * (promotes ? 4 : 2); }
  /// sizeof(Shared<config>), which host code can't see; shared.cuh holds the two together.
  constexpr int shared_bytes() const {
    const int query = query_buffers * consumers * 64 * head_dim;
    const int ring = (2 * stages + raw_buffers()) * tile_key * head_dim;
    const int barriers = 8 * (2 * consumers * query_buffers + 4 * stages + 3 * tile_slots + 1 + 2 * raw_buffers());
    const int scales = 16 * stages, slots = tile_slots * (272 + 4 * head_dim + 128);  // TileScales, Tile
    return ceil_divide(query + ring + 4 * consumers * output_bytes() + ceil_divide(barriers, 16) * 16 + scales + slots,
                       1024) *
           1024;
  }
  friend constexpr bool operator==(const Config&, const Config&) = default;
};

/// Variant::from_keys of what serves where nothing else does.
inline constexpr int never = std::numeric_limits<int>::max();

struct Variant {
  const char* name;
  Config config;
  int from_keys = 0;  // the best of its head dim for sequences of so many keys and more
};

}  // namespace tandem::internal::sm90::forward_fp8
