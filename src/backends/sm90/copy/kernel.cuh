// Copies a tensor of 16-bit elements between two layouts: what TMA can't take as it lies goes through the workspace.
#pragma once

#include "backends/sm90/copy/params.hpp"
#include "backends/sm90/ptx/ptx.hpp"

namespace tandem::internal::sm90::copy {

TANDEM_DEVICE void run(const Params& p) {
  const int64_t step = static_cast<int64_t>(ptx::grid_size()) * ptx::block_threads();
  for (int64_t i = static_cast<int64_t>(ptx::block_index()) * ptx::block_threads() + ptx::thread_index();
       i < p.elements; i += step) {
    const int64_t column = i % p.columns, head = i / p.columns % p.heads, row = i / p.columns / p.heads % p.rows,
                  batch = i / p.columns / p.heads / p.rows;
    p.destination[batch * p.to.batch + row * p.to.row + head * p.to.head + column] =
        p.source[batch * p.from.batch + row * p.from.row + head * p.from.head + column];
  }
}

}  // namespace tandem::internal::sm90::copy
