// What a forward kernel is compiled for: the only choices that change its inner loop. Plain C++ for host and device.
#pragma once

#include "common/mask.hpp"
#include "tandem/tandem.hpp"

namespace tandem::internal::sm90::forward {

/// How GEMMs and softmax of one warpgroup overlap. none: FA-3 Algorithm 1. two_stage: Algorithm 2, the next block's QK
/// runs with this block's PV and beside the softmax. three_stage: Algorithm 4 (appendix B.3), the softmax of a block
/// runs beside QK of the next and PV of the one before; a second S and P take registers, so that it needs fewer keys.
enum class Overlap { none, two_stage, three_stage };

/// When the row maximum is taken. every_block: Algorithm 1 line 18. first_block: later blocks keep the first one's
/// reference, and a block whose row sum grows too large is redone with its true maximum (exact; see math/softmax.cuh).
enum class RowMaximum { every_block, first_block };

struct Config {
  Dtype dtype = Dtype::bf16;
  int head_dim = 128;
  int value_dim = 128;
  int consumers = 2;  // warpgroups of 64 query rows each
  int tile_key = 128;
  int stages = 2;
  // The output tile is staged for its store in so many pieces, and there is room for so many of them at a time.
  int output_pieces = 1;
  int output_buffers = 1;
  // The ideas that the paper's ablation leaves out one by one (docs/forward.md): the library's kernels have them all.
  bool warp_specialised = true;  // a producer warpgroup; else the first consumer loads between its own steps
  bool pingpong = true;
  Overlap overlap = Overlap::two_stage;
  RowMaximum row_maximum = RowMaximum::first_block;

  constexpr int tile_query() const { return 64 * consumers; }
  constexpr int threads() const { return 128 * (consumers + (warp_specialised ? 1 : 0)); }
  // Registers a thread: 65,536 an SM shared by the warpgroups, in steps of 8. What ptxas gives at launch is the equal
  // share; the producer hands most of its share over (setmaxnreg). 24 for the producer spills.
  constexpr int registers_at_launch() const { return consumers == 3 ? 128 : 168; }
  constexpr int registers_producer() const { return consumers == 3 ? 32 : 40; }
  constexpr int registers_consumer() const { return consumers == 3 ? 160 : 232; }
  /// sizeof(Shared<config>), which host code can't see; shared.cuh holds the two together.
  constexpr int shared_bytes() const {
    const int query = consumers * 64 * head_dim * 2;
    const int output = consumers * 64 * (value_dim / output_pieces) * output_buffers * 2;
    const int ring = stages * tile_key * (head_dim + value_dim) * 2;
    const int barriers = 8 * (2 * consumers + 4 * stages + 4);
    const int slots = 2 * 128;  // of Tile
    return ceil_divide(query + ring + output + ceil_divide(barriers, 16) * 16 + slots, 1024) * 1024;
  }
  friend constexpr bool operator==(const Config&, const Config&) = default;
};

struct Variant {
  const char* name;
  Config config;
  const void* cubin = nullptr;  // of a kernel that the library doesn't hold
};

}  // namespace tandem::internal::sm90::forward
