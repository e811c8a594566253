// The arithmetic of quantisation that the CPU and the kernels share, operation by operation, so that their results are
// the same to the last bit.
#pragma once

#include <bit>
#include <cstdint>

#include "common/portable.hpp"

namespace tandem {

/// The largest numbers that a stored element holds.
constexpr float largest_e4m3 = 448, largest_int8 = 127;

/// The scale of elements of which the largest finite one has this magnitude: positive, normal and finite, whatever the
/// magnitude. Powers of two are rounded up.
TANDEM_SHARED_FUNCTION constexpr float scale_of(float amax, float largest, bool power_of_two) {
  constexpr float smallest_normal = 0x1p-126f, largest_finite = 0x1.fffffep127f;
  if (!(amax > 0)) return 1;  // nothing but zeros, or an amax of the caller's that is NaN
  float scale = (amax < largest_finite ? amax : largest_finite) / largest;
  if (scale < smallest_normal) scale = smallest_normal;
  if (!power_of_two) return scale;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(scale) + 0x7fffffu) & 0x7f800000u);
}

/// What an element is multiplied with before it is rounded. `norm` is of the Hadamard matrix, whose sums are left
/// unscaled until here.
TANDEM_SHARED_FUNCTION constexpr float factor_of(float scale, float norm) { return 1.0f / scale * norm; }

/// 1 / sqrt(block), of a power of two: what makes the Hadamard matrix orthonormal.
TANDEM_SHARED_FUNCTION constexpr float hadamard_norm(int32_t block) {
  float norm = 1;
  for (; block >= 4; block /= 4) norm *= 0.5f;
  return block == 2 ? norm * 0.707106781186547524f : norm;
}

/// The order in which the mean of a head's channel is summed, in float32: chunks of 128 rows, in each of them 16 sums
/// of every 16th row, which are added in their order; then 8 sums of every 8th chunk, which are added in their order.
/// What isn't finite counts as 0.
constexpr int32_t mean_chunk = 128, mean_lanes = 16, mean_slots = 8;

/// The mean of a channel with that sum; 0 where there is none.
TANDEM_SHARED_FUNCTION constexpr float mean_of(float sum, int32_t rows) {
  const float mean = sum / static_cast<float>(rows > 0 ? rows : 1);
  return mean - mean == 0 ? mean : 0;
}

}  // namespace tandem
