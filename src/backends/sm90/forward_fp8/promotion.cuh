// Two-level accumulation: the tensor cores keep about 14 bits of an 8-bit product's sums and truncate, so that long
// sums of one sign shrink. Every so many blocks O moves to float32 sums in shared memory, and starts again from 0.
#pragma once

#include "backends/sm90/forward_fp8/config.hpp"
#include "backends/sm90/math/rows.cuh"

namespace tandem::internal::sm90::forward_fp8 {

/// A thread's float32 sums: four accumulators a piece, and the references of its rows that they were taken with.
template <Config config>
struct Promotion {
  using Output = float[config.head_dim / 2];
  struct alignas(16) Piece {
    float sum[4];
  };
  struct alignas(8) References {
    float row[2];
  };

  uint8_t* buffer;
  int thread;  // of the warpgroup

  /// Adds O to the sums, or begins them with it, and clears it.
  TANDEM_DEVICE void take(Output& output, const RowSums& rows, bool begun) const {
    float factor[2] = {0, 0};
    if (begun) factors(rows, factor);
#pragma unroll
    for (int i = 0; i < config.head_dim / 2; i += 4) {
      Piece sums = begun ? piece(i) : Piece{};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums.sum[j] = ptx::multiply_add(sums.sum[j], factor[fragment_upper(j)], output[i + j]);
        output[i + j] = 0;
      }
      piece(i) = sums;
    }
    references() = {{rows.reference(0), rows.reference(1)}};
  }
  /// O becomes the whole sum.
  TANDEM_DEVICE void add_to(Output& output, const RowSums& rows) const {
    float factor[2];
    factors(rows, factor);
#pragma unroll
    for (int i = 0; i < config.head_dim / 2; i += 4) {
      const Piece sums = piece(i);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        output[i + j] = ptx::multiply_add(sums.sum[j], factor[fragment_upper(j)], output[i + j]);
    }
  }

 private:
  TANDEM_DEVICE void factors(const RowSums& rows, float (&factor)[2]) const {
    const References old = references();
#pragma unroll
    for (int r = 0; r < 2; ++r) factor[r] = ptx::exp2(old.row[r] - rows.reference(r));
  }
  TANDEM_DEVICE Piece& piece(int i) const { return reinterpret_cast<Piece*>(buffer)[i / 4 * 128 + thread]; }
  TANDEM_DEVICE References& references() const {
    return reinterpret_cast<References*>(buffer + 64 * config.head_dim * 4)[thread];
  }
};

}  // namespace tandem::internal::sm90::forward_fp8
