// Which keys a query sees, and which key blocks a query tile must visit: the one implementation for host, GPU kernels
// and emulator. (The oracle has its own, on purpose.)
#pragma once

#include <cstdint>

#include "common/portable.hpp"

namespace tandem {

/// A window round the diagonal with both bounds resolved: query i sees keys i + diagonal - left to i + diagonal +
/// right.
struct Window {
  static constexpr int32_t unlimited = INT32_MAX;
  int32_t left = unlimited;
  int32_t right = unlimited;
};

/// Half-open range of keys or key blocks; empty when end <= begin.
struct Range {
  int32_t begin;
  int32_t end;
};

TANDEM_SHARED_FUNCTION constexpr int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
TANDEM_SHARED_FUNCTION constexpr int32_t greatest(int32_t a, int32_t b) { return a > b ? a : b; }
TANDEM_SHARED_FUNCTION constexpr int32_t clamp(int32_t x, int32_t low, int32_t high) {
  return least(greatest(x, low), high);
}
TANDEM_SHARED_FUNCTION constexpr int32_t ceil_divide(int32_t a, int32_t b) { return (a + b - 1) / b; }

/// a + b where a result that leaves 32 bits is not used: it wraps. A signed sum would let the compiler conclude, from
/// its not overflowing, that the other branch is taken.
TANDEM_SHARED_FUNCTION constexpr int32_t wrapping_sum(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

/// The keys that `query` sees among `keys`. Lengths and |diagonal| are below 2^30; what could leave 32 bits beside an
/// unlimited window is compared first.
TANDEM_SHARED_FUNCTION constexpr Range visible_keys(int32_t query, int32_t keys, int32_t diagonal, Window window) {
  const int32_t at = query + diagonal;
  return {least(window.left >= at ? 0 : wrapping_sum(at, -window.left), keys),
          window.right >= keys - at ? keys : greatest(wrapping_sum(wrapping_sum(at, window.right), 1), 0)};
}

/// The key blocks of a query tile (rows [first, last], last included). Blocks of `visit` hold a key that some row sees;
/// those of `full` (inside visit) hold only keys that every row sees, so they need no mask.
struct KeyBlocks {
  Range visit;
  Range full;
};

TANDEM_SHARED_FUNCTION constexpr KeyBlocks key_blocks(int32_t first, int32_t last, int32_t keys, int32_t diagonal,
                                                      Window window, int32_t block) {
  const Range of_first = visible_keys(first, keys, diagonal, window);
  const Range of_last = visible_keys(last, keys, diagonal, window);
  KeyBlocks blocks{{of_first.begin / block, ceil_divide(of_last.end, block)}, {0, 0}};
  if (blocks.visit.end < blocks.visit.begin) blocks.visit.end = blocks.visit.begin;
  // Every row sees the keys from the last row's first to the first row's last.
  blocks.full = {ceil_divide(of_last.begin, block), of_first.end / block};
  blocks.full.begin = clamp(blocks.full.begin, blocks.visit.begin, blocks.visit.end);
  blocks.full.end = clamp(blocks.full.end, blocks.full.begin, blocks.visit.end);
  return blocks;
}

}  // namespace tandem
