// The end of a tile (FA-3 Algorithm 3, line 22): dK, dV and, beyond d 128, dQ to 16 bits in shared memory, from where
// TMA takes them.
#pragma once

#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/ptx/ptx.hpp"
#include "backends/sm90/tile/layout.hpp"

namespace tandem::internal::sm90::backward {

/// Writes a warpgroup's 64 rows, chunk by chunk. Rows from `rows` on don't count and are 0 whatever a NaN made of them.
template <class Element, class Layout, int N>
TANDEM_DEVICE void stage_rows(float (&sum)[N], void* target, float scale, int rows, int warp, int lane) {
  const int row = fragment_row(warp, lane);
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] = row + 8 * fragment_upper(i) < rows ? sum[i] * scale : 0.0f;
#pragma unroll
  for (int k = 0; k < N / 8; ++k) {
    const int offset = Layout::chunk_offset(64, k / Layout::steps) +
                       swizzled_offset(16 * warp + (lane & 15), k % Layout::steps * 2 + (lane >> 4), Layout::row_bytes);
    ptx::store_matrices(static_cast<uint8_t*>(target) + offset, ptx::pack<Element>(sum[8 * k], sum[8 * k + 1]),
                        ptx::pack<Element>(sum[8 * k + 2], sum[8 * k + 3]),
                        ptx::pack<Element>(sum[8 * k + 4], sum[8 * k + 5]),
                        ptx::pack<Element>(sum[8 * k + 6], sum[8 * k + 7]));
  }
  ptx::fence_proxy_async();
}

}  // namespace tandem::internal::sm90::backward
