// What the CPU backend's host code hands to its vectorised kernels: the resolved problem with this run's pointers, and
// one query tile of it at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/sequences.hpp"
#include "plan/attention.hpp"

namespace tandem::internal::cpu {

/// Keys of a block: the width of the score tile. A multiple of every vector chunk of the kernels.
inline constexpr int64_t key_block = 128;
/// The largest query tile: 16 groups of the 6 rows that the widest micro-kernel computes at once.
inline constexpr int64_t max_tile_rows = 96;
inline constexpr int64_t max_head_dim = 512;

/// Rows of float scratch are padded to whole vectors of 64 bytes.
inline constexpr int64_t padded(int64_t columns) { return (columns + 15) / 16 * 16; }

struct Matrix {
  const void* data = nullptr;
  Strides stride{};
};

/// One run of a plan.
struct Job {
  const Attention* attention = nullptr;
  Matrix query, key, value, grad_out;
  const float* lse_in = nullptr;
  void* out = nullptr;
  Strides out_stride{};
  float* lse = nullptr;  // null: not wanted
  Strides lse_stride{};
  const float* sinks = nullptr;
};

/// Rows [first, first + rows) of a sequence and key head. A row is a query and one of the heads that share the keys:
/// row r is query r / group, head key_head * group + r % group, so that a group shares each key that is read.
struct Tile {
  int64_t batch = 0, key_head = 0;
  Sequence sequence;
  int64_t first = 0, rows = 0;
};

/// Floats of scratch that forward_tile needs for tiles of so many rows.
size_t forward_scratch(const Attention& attention, int64_t tile_rows);
void forward_tile(const Job& job, const Tile& tile, float* scratch);

/// The instruction set that the kernels use here: "AVX3", "AVX2", "NEON"...
const char* instruction_set();

}  // namespace tandem::internal::cpu
