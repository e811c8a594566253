// The end of a tile in every forward kernel, up to the store of O: sinks, LSE, the factors that normalise O.
#pragma once

#include "backends/sm90/forward/params.hpp"
#include "backends/sm90/math/rows.cuh"

namespace tandem::internal::sm90::forward {

/// A consumer's rows at a tile's end.
struct EpilogueRows {
  const Params& params;
  const Tile& tile;
  const int consumer, warp, lane;

  /// Writes LSE; `factor` receives what each row of O is to be multiplied by.
  template <int count>
  TANDEM_DEVICE void finish(float (&output)[count], RowSums& rows, float (&factor)[2]) const {
    factor[0] = factor[1] = 1;
    if (params.sinks != nullptr) {
      const float sink = params.sinks[tile.head];
#pragma unroll
      for (int r = 0; r < 2; ++r) factor[r] = rows.add_sink(r, sink);
    }
    if (params.lse != nullptr && (lane & 3) == 0) store_lse(rows);
    // A row that saw no key is 0, even where a NaN of a value that others see has reached it.
    const bool empty0 = rows.sum(0) == 0, empty1 = rows.sum(1) == 0;
    if (ptx::any(empty0 || empty1)) {
#pragma unroll
      for (int i = 0; i < count; ++i)
        if (fragment_upper(i) ? empty1 : empty0) output[i] = 0;
    }
    factor[0] = empty0 ? 0.0f : factor[0] * ptx::reciprocal(rows.sum(0));
    factor[1] = empty1 ? 0.0f : factor[1] * ptx::reciprocal(rows.sum(1));
  }

 private:
  TANDEM_DEVICE int row() const { return tile.row + 64 * consumer + fragment_row(warp, lane); }

  TANDEM_DEVICE void store_lse(const RowSums& rows) const {
    float* lse = params.lse + tile.batch * params.lse_batch_stride + tile.head * params.lse_head_stride;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (row() + 8 * r < tile.rows)
        lse[static_cast<int64_t>(tile.lse_row + row() + 8 * r) * params.lse_row_stride] = rows.lse(r);
  }
};

}  // namespace tandem::internal::sm90::forward
