// What the kernels of the quantiser are given at run time, for host, GPU and emulator.
#pragma once

#include "backends/sm90/backward/params.hpp"
#include "common/quantized.hpp"
#include "common/rounding.hpp"

namespace tandem::internal::sm90::quantize {

using backward::Layout;
using backward::QueryBlocks;
using forward::Rows;

/// A kernel's threads at most; how many work is the plan's choice.
constexpr int threads = 1024;
/// Eight elements: 16 bytes of a source's row. A thread holds so many pieces of a row.
constexpr int piece = 8, pieces_of_thread = 4;

/// A tensor of 16-bit elements that is read: whole pieces, where it lies so that they can be.
struct Source {
  const uint16_t* data;
  Layout layout;
  Rows rows;
  QueryBlocks blocks;  // of rows: what a block of threads takes of a head, and how they are numbered
  int32_t batch, heads, columns;
  bool is_bf16, wide;
};

/// Scales, of any strides; those of what they don't depend on are 0.
struct Scales {
  float* data;
  int64_t batch, head, block;
};

/// own: of a block's rows, found by its block of threads. known: written by an earlier kernel. none: nothing is
/// quantised; the largest magnitude of each block goes to Scaling::found.
enum class Search : int32_t { own, known, none };

struct Scaling {
  Search search;
  Scales scales;
  float* found;       // [number of the block][head], before `norm`
  const float* mean;  // taken out of value; null: nothing is
  int64_t mean_batch, mean_head;
  float largest;  // that an element holds
  float norm;     // of the Hadamard matrix, else 1
  bool power_of_two;
};

/// Rotary embedding; dims 0: none.
struct Rotation {
  const float *cos, *sin;
  const int32_t* position;  // of each sequence's first row, or null
  int64_t cos_row, sin_row;
  int32_t dims, positions;
  bool interleaved;
  bool whole;  // interleaved, or pairs lie in one thread; the tables can be read in 16 bytes
};

/// Rows to rows. 2^lane_bits threads share a row, piece by piece; `rows_at_once` rows are in registers, of
/// `source.blocks.tile`.
struct RowsParams {
  Source source;
  Scaling scaling;
  Rotation rotation;
  uint8_t* target;
  Layout target_layout;
  uint32_t signs[32];  // of a piece of dimensions each: minus, before the Hadamard matrix; see flip()
  int32_t hadamard;    // dimensions of its blocks, or 1: none
  int32_t lane_bits, rows_at_once, parts;
  int32_t heads_at_once;  // of a block of threads, one after the other
  bool integer;           // int8, else e4m3
  bool target_wide;       // pieces of 8 bytes can be written
  bool target_pairs;      // and two pieces that neighbouring threads hold, where all have such a neighbour
};

/// Value to groups of 16 keys (ValueLayout::packed). A thread holds two columns of a group.
struct ValueParams {
  Source source;
  Scaling scaling;
  uint8_t* target;
  int64_t target_batch, target_head, target_group;
  int32_t heads_at_once;  // of a block of threads, one after the other
  int32_t parts;
  int32_t groups_at_once;  // in registers, of source.blocks.tile keys
  bool packed_sequences;
  bool target_wide;
};

/// Sums of value's columns, and with `extremes` their smallest and largest finite elements too: of each chunk of
/// mean_chunk rows, [number of the chunk][head][1 or 3][column].
struct ColumnsParams {
  static constexpr int threads = 512;
  Source source;
  float* found;
  bool extremes;
};

/// The kernel after a search: means, or scales. A block of threads for each head of a sequence, or one alone.
struct CombineParams {
  const float*
      found;  // of the kernel before: ColumnsParams::found or Scaling::found; or, `given`, what the caller says
  Rows rows;
  QueryBlocks blocks;  // of `found`
  int32_t batch, heads;
  // Means.
  float* mean;  // null: scales are made
  int64_t mean_batch, mean_head;
  int32_t columns;
  bool extremes;
  float* largest;  // with `extremes`: of each head, [batch][head], with the mean taken out
  // Scales.
  Scales scales;
  Scales given;    // largest magnitudes of the caller's; its data may be null
  bool all_heads;  // one scale of all
  float norm, limit;
};

constexpr const char *rows_kernel = "quantize_rows", *value_kernel = "quantize_value",
                     *columns_kernel = "quantize_columns", *combine_kernel = "quantize_combine";
constexpr int rows_shared_bytes = 2 * 32 * sizeof(float);
constexpr int columns_shared_bytes = 3 * mean_lanes * 256 * sizeof(float);
constexpr int combine_shared_bytes = 3 * mean_slots * 128 * sizeof(float);

/// The quantiser's kernels, for the table of all.
struct Kernel {
  const char* name;
  int threads, shared_bytes;
};
inline constexpr Kernel kernels[] = {
    {rows_kernel, threads, rows_shared_bytes},
    {value_kernel, threads, rows_shared_bytes},
    {columns_kernel, ColumnsParams::threads, columns_shared_bytes},
    {combine_kernel, threads, combine_shared_bytes},
};

}  // namespace tandem::internal::sm90::quantize
