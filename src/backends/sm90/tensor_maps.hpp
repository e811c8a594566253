// Tensor maps of attention's tensors: (column, row, head, ...) boxes of one swizzle row by the rows of a tile.
#pragma once

#include "backends/sm90/device.hpp"
#include "plan/attention.hpp"

namespace tandem::internal::sm90 {

/// What TMA needs to know of one side of the problem (query and output, or key and value).
struct Side {
  int64_t batch = 0, rows = 0, heads = 0;  // of a dense tensor; packed: batch 1, rows = total
  bool ragged = false;
};

/// Why TMA can't take a tensor as it lies, or null if it can: 16-byte alignment of the base and of all strides, which
/// also may not be 0 where a dimension has more than one element.
const char* unfit_for_tma(const TensorSpec& spec, const Side& side) noexcept;

/// The map of a dense tensor: (column, row, head, batch, 1).
///
/// Of a ragged one: (column, row of 2^30, head, y, w), where y steps by one row and w by 2^34 bytes minus one row. At
/// (row r, y, w) = (2^30 - n + i, offset + n, 2^30) the address is base + (offset + i) rows, since 2^30 * 2^34 wraps
/// round 64 bits; and row i >= n of the sequence is out of bounds by the row dimension. So one map serves sequences of
/// any offset and length, given at run time.
TensorMapSpec attention_map(const TensorSpec& spec, void* data, const Side& side, int columns, int chunk_columns,
                            int tile_rows) noexcept;

}  // namespace tandem::internal::sm90
