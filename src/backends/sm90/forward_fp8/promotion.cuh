// Two-level accumulation: the tensor cores keep about 14 bits of an 8-bit product's sums and truncate, so that long
// sums of one sign shrink. Every so many blocks O moves to float32 sums in shared memory, and starts again from 0.
#pragma once

#include "backends/sm90/forward_fp8/config.hpp"
#include "backends/sm90/math/rows.cuh"

namespace tandem::internal::sm90::forward_fp8 {

/// A thread's float32 sums, four accumulators a piece. They have O's reference: what rescales O rescales them.
template <Config config>
struct Promotion {
  using Output = float[config.head_dim / 2];
  struct alignas(16) Piece {
    float sum[4];
  };

  uint8_t* buffer;  // of the warp
  int lane;

  TANDEM_DEVICE void clear() const {
#pragma unroll 1  // rare
    for (int i = 0; i < config.head_dim / 2; i += 4) piece(i) = Piece{};
  }
  /// Adds O to the sums and clears it.
  TANDEM_DEVICE void take(Output& output) const {
#pragma unroll
    for (int i = 0; i < config.head_dim / 2; i += 4) {
      Piece sums = piece(i);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums.sum[j] += output[i + j];
        output[i + j] = 0;
      }
      piece(i) = sums;
    }
  }
  /// O becomes the whole sum.
  TANDEM_DEVICE void add_to(Output& output) const {
#pragma unroll
    for (int i = 0; i < config.head_dim / 2; i += 4) {
      const Piece sums = piece(i);
#pragma unroll
      for (int j = 0; j < 4; ++j) output[i + j] += sums.sum[j];
    }
  }
  TANDEM_DEVICE void scale(float factor0, float factor1) const {
    float* sum = reinterpret_cast<float*>(buffer) + 4 * lane;
#pragma unroll 1  // rare
    for (int i = 0; i < config.head_dim / 8; ++i, sum += 128) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[j] *= fragment_upper(j) ? factor1 : factor0;
    }
  }

 private:
  TANDEM_DEVICE Piece& piece(int i) const { return reinterpret_cast<Piece*>(buffer)[i / 4 * 32 + lane]; }
};

}  // namespace tandem::internal::sm90::forward_fp8
