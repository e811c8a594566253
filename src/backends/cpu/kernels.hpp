// What the CPU backend's host code hands to its vectorised kernels: the resolved problem with this run's pointers, and
// one query tile of it at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/cpu/scales.hpp"
#include "backends/cpu/sequences.hpp"
#include "common/dtypes.hpp"
#include "plan/attention.hpp"

namespace tandem::internal::cpu {

/// Keys of a block: the width of the score tile. A multiple of every vector chunk of the kernels.
inline constexpr int64_t key_block = 128;
/// The largest query tile: 16 groups of the 6 rows that the widest micro-kernel computes at once.
inline constexpr int64_t max_tile_rows = 96;
inline constexpr int64_t max_head_dim = 512;

/// Rows of float scratch are padded to whole vectors of 64 bytes.
inline constexpr int64_t padded(int64_t columns) { return (columns + 15) / 16 * 16; }

/// A (batch, row, head, column) tensor of this run; batch stride 0 where packed.
struct Matrix {
  void* data = nullptr;
  Strides stride{};
  int64_t offset(int64_t batch, int64_t row, int64_t head) const {
    return batch * stride.batch + row * stride.row + head * stride.head;
  }
};

/// All 256 numbers of e4m3. A constant: the kernels' files, compiled for several instruction sets, must not run code
/// when the library is loaded.
struct E4m3Table {
  float number[256] = {};
  constexpr E4m3Table() {
    for (int i = 0; i < 256; ++i) number[i] = to_float(e4m3{static_cast<uint8_t>(i)});
  }
};
inline constexpr E4m3Table e4m3_table;

/// One run of a plan.
struct Job {
  const Attention* attention = nullptr;
  Matrix query, key, value, out, lse;  // lse: float32, no columns; without data where it isn't wanted
  Matrix grad_out, grad_query, grad_key, grad_value;
  const float* sinks = nullptr;
  // 8 bits: the mean without data where none was taken out; out_scale null where out isn't e4m3. A packed value is the
  // matrix (batch, group of keys, head, place of a channel).
  Scales query_scale, key_scale, value_scale;
  Matrix value_mean;  // float32, no rows
  const float* out_scale = nullptr;
};

/// Rows [first, first + rows) of a sequence and key head: of its keys, or of its queries. A query row is a query and
/// one of the heads that share the keys: row r is query r / group, head key_head * group + r % group, so that each key
/// that is read serves the whole group.
struct Tile {
  int64_t batch = 0, key_head = 0;
  Sequence sequence;
  int64_t first = 0, rows = 0;
};

/// A tile of query rows, and what each of them sees.
class QueryTile {
 public:
  QueryTile(const Job& job, const Tile& tile)
      : tile_(tile),
        window_(job.attention->window),
        group_(job.attention->group()),
        diagonal_(job.attention->diagonal.value_or(static_cast<int32_t>(tile.sequence.keys - tile.sequence.queries))) {}

  int64_t rows() const { return tile_.rows; }
  const Tile& tile() const { return tile_; }
  /// The row's number in the tensors.
  int64_t at(int64_t row) const { return tile_.sequence.first_query + query(row); }
  int64_t head(int64_t row) const { return tile_.key_head * group_ + (tile_.first + row) % group_; }
  int64_t offset(const Matrix& matrix, int64_t row) const { return matrix.offset(tile_.batch, at(row), head(row)); }
  Range seen(int64_t row) const {
    return visible_keys(static_cast<int32_t>(query(row)), static_cast<int32_t>(tile_.sequence.keys), diagonal_,
                        window_);
  }
  /// The keys that some row sees. Both ends of what a row sees grow with the row, so they are one range, as are the
  /// rows that see a part of a range of keys.
  Range seen() const { return {seen(0).begin, seen(rows() - 1).end}; }
  Range rows_that_see(int64_t begin, int64_t end) const {
    const auto misses = [&](int32_t row) {
      const Range keys = seen(row);
      return std::max<int64_t>(keys.begin, begin) >= std::min<int64_t>(keys.end, end);
    };
    Range range{0, static_cast<int32_t>(rows())};
    while (range.begin < range.end && misses(range.begin)) ++range.begin;
    while (range.begin < range.end && misses(range.end - 1)) --range.end;
    return range;
  }

 private:
  int64_t query(int64_t row) const { return (tile_.first + row) / group_; }

  const Tile& tile_;
  Window window_;
  int64_t group_;
  int32_t diagonal_;
};

/// Hands out parts of a thread's scratch, each beginning on 64 bytes; without a base it only counts.
class Scratch {
 public:
  explicit Scratch(float* base = nullptr) : base_(base) {}
  float* take(int64_t floats) {
    float* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += padded(floats);
    return at;
  }
  size_t used() const { return static_cast<size_t>(used_); }

 private:
  float* base_;
  int64_t used_ = 0;
};

/// Floats of scratch that a thread needs for query tiles of so many rows.
size_t forward_scratch(const Attention& attention, int64_t tile_rows);
size_t forward_fp8_scratch(const Attention& attention, int64_t tile_rows);
size_t backward_scratch(const Attention& attention, int64_t tile_rows);

void forward_tile(const Job& job, const Tile& queries, float* scratch);
void forward_fp8_tile(const Job& job, const Tile& queries, float* scratch);
/// The gradient of a tile of query rows.
void backward_query_tile(const Job& job, const Tile& queries, float* scratch);
/// The gradients of at most key_block keys and values; `tile_rows` is that of the query tiles.
void backward_key_tile(const Job& job, const Tile& keys, int64_t tile_rows, float* scratch);

/// The instruction set that the kernels use here: "AVX3", "AVX2", "NEON"...
const char* instruction_set();

}  // namespace tandem::internal::cpu
