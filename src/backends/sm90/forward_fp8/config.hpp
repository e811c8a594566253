// What an 8-bit forward kernel is compiled for: the only choices that change its inner loop. Plain C++ for host and
// device.
#pragma once

#include "common/mask.hpp"
#include "tandem/tandem.hpp"

namespace tandem::internal::sm90::forward_fp8 {

struct Config {
  Dtype dtype = Dtype::e4m3;  // of queries and keys: e4m3 or int8; weights and values are e4m3
  int head_dim = 128;         // of queries, keys and values
  int consumers = 2;          // warpgroups of 64 query rows each
  int tile_key = 128;
  ValueLayout value_layout = ValueLayout::packed;
  int query_buffers = 2;
  // In a turn at the tensor cores O of one block comes before S of the next; else after it.
  bool output_first = false;
  // Else the turn is given before O's last product, so that the next consumer's first one follows without a gap.
  bool late_turn = false;
  // Partial sums of O can be promoted to float32 sums in shared memory; else only the output is staged there.
  bool promotes = true;

  static constexpr int stages = 2;
  static constexpr bool pingpong = true;
  static constexpr int transposers = 2;  // warps of the producer warpgroup

  constexpr bool transposes() const { return value_layout == ValueLayout::rows; }
  /// Values as they lie in memory, on their way to be transposed: buffers of a tile.
  constexpr int raw_buffers() const { return transposes() ? (head_dim >= 192 ? 1 : 2) : 0; }
  constexpr int tile_query() const { return 64 * consumers; }
  constexpr int threads() const { return 128 * (consumers + 1); }
  // As of the 16-bit kernels (forward/config.hpp).
  constexpr int registers_producer() const { return consumers == 3 ? 32 : 40; }
  constexpr int registers_consumer() const { return consumers == 3 ? 160 : 232; }
  /// Bytes of a consumer's float32 sums and their references, or of its staged output and the value's mean.
  constexpr int output_bytes() const { return 64 * head_dim * (promotes ? 4 : 2) + 1024; }
  /// sizeof(Shared<config>), which host code can't see; shared.cuh holds the two together.
  constexpr int shared_bytes() const {
    const int query = query_buffers * consumers * 64 * head_dim;
    const int ring = (2 * stages + raw_buffers()) * tile_key * head_dim;
    const int barriers = 8 * (2 * consumers * query_buffers + 4 * stages + 4 + 1 + 2 * raw_buffers());
    const int scales = 16 * stages + 2 * 272, slots = 2 * 112;  // of TileScales, of Tile
    return ceil_divide(query + ring + consumers * output_bytes() + ceil_divide(barriers, 16) * 16 + scales + slots,
                       1024) *
           1024;
  }
  friend constexpr bool operator==(const Config&, const Config&) = default;
};

struct Variant {
  const char* name;
  Config config;
  int from_keys = 0;  // the best of its head dim for sequences of so many keys and more
};

}  // namespace tandem::internal::sm90::forward_fp8
