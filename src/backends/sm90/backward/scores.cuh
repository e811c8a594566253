// What the consumers do with transposed scores, rows of a fragment being keys and its columns queries.
#pragma once

#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/ptx/ptx.hpp"
#include "backends/sm90/tile/layout.hpp"

namespace tandem::internal::sm90::backward {

struct alignas(8) Pair {
  float x, y;
};

/// Hides the queries that don't see a key: of the keys from `first_key` on, which is the thread's first, and of a block
/// that begins at `first_query`.
template <int N>
TANDEM_DEVICE void hide_unseeing_queries(float (&scores)[N], const Tile& tile, const Params& params, int first_key,
                                         int first_query, int lane) {
  const int first_column = first_query + fragment_column(lane, 0);
  const Window window{params.window.right, params.window.left};
  const float hidden = params.scale_log2 > 0 ? -__builtin_huge_valf() : __builtin_huge_valf();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int key = first_key + 8 * r;
    Range seeing{0, 0};
    if (key < tile.keys) seeing = visible_keys(key, first_query + 2 * N, -tile.diagonal, window);
    const int begin = seeing.begin - first_column, end = seeing.end - first_column;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (fragment_upper(i) == r && (fragment_column(0, i) >= end || fragment_column(0, i) < begin)) scores[i] = hidden;
  }
}

/// P = exp(S - LSE) (FA-3 Algorithm 3, line 11); `lse` of the block's queries.
template <int N>
TANDEM_DEVICE void exponentials(float (&scores)[N], const float* lse, float scale, int lane) {
  const Pair* pairs = reinterpret_cast<const Pair*>(lse) + (lane & 3);
#pragma unroll
  for (int j = 0; j < N / 4; ++j) {
    const Pair l = pairs[4 * j];
    scores[4 * j] = ptx::exp2(ptx::multiply_add(scores[4 * j], scale, -l.x));
    scores[4 * j + 1] = ptx::exp2(ptx::multiply_add(scores[4 * j + 1], scale, -l.y));
    scores[4 * j + 2] = ptx::exp2(ptx::multiply_add(scores[4 * j + 2], scale, -l.x));
    scores[4 * j + 3] = ptx::exp2(ptx::multiply_add(scores[4 * j + 3], scale, -l.y));
  }
}

}  // namespace tandem::internal::sm90::backward
