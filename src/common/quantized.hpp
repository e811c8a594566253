// The layouts and signs of 8-bit attention that the quantisers, the forward kernels and the CPU share.
#pragma once

#include <cstdint>

#include "common/portable.hpp"

namespace tandem {

/// Keys of a group of a packed value (tandem::ValueLayout::packed).
constexpr int32_t value_group = 16;

/// The place within its group of a key (0 to 15), and the key of a place. The order is that in which a thread's
/// accumulators of S, taken as they come, form wgmma's 8-bit A fragment, so that P needs no shuffle.
TANDEM_SHARED_FUNCTION constexpr int32_t packed_place(int32_t key) {
  return 4 * ((key & 7) >> 1) + (key & 1) + 2 * (key >> 3);
}
TANDEM_SHARED_FUNCTION constexpr int32_t packed_key(int32_t place) {
  return 2 * (place >> 2) + (place & 1) + 8 * ((place & 3) >> 1);
}

/// The number of a sequence's first block (of scales, or of value groups) among packed rows; blocks of different
/// sequences never overlap, and nobody sums lengths. Dense sequences begin at 0.
TANDEM_SHARED_FUNCTION constexpr int32_t first_block(int32_t start, int32_t rows, int32_t sequence) {
  return start / rows + sequence;
}

/// dividend / divisor by the divisor's inverse, exact for dividends from 0 to `quotient_limit`: a fraction of a
/// division's instructions.
constexpr int32_t quotient_limit = 1 << 21;
TANDEM_SHARED_FUNCTION constexpr int32_t quotient(int32_t dividend, float inverse) {
  return static_cast<int32_t>((static_cast<float>(dividend) + 0.5f) * inverse);
}

/// The Hadamard matrix acts on blocks of so many dimensions: the largest power of two that divides head_dim.
TANDEM_SHARED_FUNCTION constexpr int32_t hadamard_block(int32_t head_dim) { return head_dim & -head_dim; }

/// Whether the random sign of a dimension is minus: a bit of splitmix64 of the seed and the dimension.
TANDEM_SHARED_FUNCTION constexpr bool negative_sign(uint64_t seed, int32_t dim) {
  uint64_t x = seed + 0x9e3779b97f4a7c15u * (static_cast<uint64_t>(dim) + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return ((x ^ (x >> 31)) & 1) != 0;
}

}  // namespace tandem
