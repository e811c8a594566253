// The online softmax of 8-bit attention, on scores that stay in the registers where wgmma left them, with weights in
// e4m3. As the 16-bit one (softmax.cuh) it takes the row maximum from a tile's first block alone, and gives it the
// weight 8 exactly: where one key outweighs the others its weight then isn't rounded at all. (Whole exponents would
// make rescaling exact, but cost a third of the accuracy on data with outliers.) Should a thread's sum over a block
// pass 448, the largest e4m3, the block is redone with its true maximum; otherwise no weight can have saturated.
//
// Scores of a block are scaled by `scale`: softmax scale * log2(e) * the query's scale * the key's. The value's scale,
// over the tile's reference, joins the exponent, so that the output is never rescaled for it; its inverse takes it out
// of the sum again.
#pragma once

#include "backends/sm90/math/rows.cuh"

namespace tandem::internal::sm90 {

/// int8 scores are sums of ints that start at the bits of 1.5 * 2^23, and so read as floats (up to 2^22 in magnitude).
template <class Score>
struct ScoreFormat {
  static constexpr float origin = 0;
};
template <>
struct ScoreFormat<int> {
  static constexpr float origin = 0x1.8p23f;
};

template <class Score, int tile_key>
class SoftmaxFp8 : public RowSums {
 public:
  using Scores = Score[tile_key / 2];
  using Weights = uint32_t[tile_key / 32][4];  // P, as wgmma's A operand
  static constexpr float origin = ScoreFormat<Score>::origin;

  /// What a masked score is set to: its weight is 0 for either sign of the scale.
  TANDEM_DEVICE Score masked() const {
    const float score = scale_ > 0 ? -infinity : infinity;
    if constexpr (origin != 0)
      return ptx::as_int(score);
    else
      return score;
  }

  /// Of the next block.
  TANDEM_DEVICE void set_scales(float scale, float value_log2, float value_inverse) {
    scale_ = scale;
    value_log2_ = value_log2;
    value_inverse_ = value_inverse;
  }

  /// A tile's first block: sets the reference.
  TANDEM_DEVICE void first(const Scores& scores, Weights& weights) {
    float extreme[2];
    row_extreme(scores, extreme);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      // A row that sees none of the block: any later score then overflows, and the rescue finds it a reference.
      reference_[r] = ptx::maximum(extreme[r], -nothing);
      sum_[r] = 0;
    }
    exponentials(scores, weights);
    add_block();
  }
  /// Any later block. Needs output and weights out of flight; rescale(factor of row 0, of row 1) is for the output.
  template <class Rescale>
  TANDEM_DEVICE void next(const Scores& scores, Weights& weights, Rescale rescale) {
    exponentials(scores, weights);
    if (ptx::any(ptx::maximum(block_[0], block_[1]) > largest)) rescue(scores, weights, rescale);
    add_block();
  }
  /// After a tile's last block.
  TANDEM_DEVICE void finish() { sum_lanes(); }

 private:
  static constexpr float largest = 448;
  static constexpr float headroom = 3;  // log2 of the largest weight of a first block
  static_assert(tile_key / 4 << 3 <= 448, "sums of a first block stay below the limit");

  TANDEM_DEVICE void add_block() {
#pragma unroll
    for (int r = 0; r < 2; ++r) sum_[r] = ptx::multiply_add(block_[r], value_inverse_, sum_[r]);
  }

  TANDEM_DEVICE void exponentials(const Scores& scores, Weights& weights) {
    float offset[2], part[4] = {};  // two sums a row
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      offset[r] = value_log2_ - reference_[r];
      if constexpr (origin != 0) offset[r] = ptx::multiply_add(-origin, scale_, offset[r]);
    }
#pragma unroll
    for (int i = 0; i < tile_key / 2; i += 8) {
      float p[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int r = fragment_upper(j);
        p[j] = ptx::exp2(ptx::multiply_add(ptx::as_float(scores[i + j]), scale_, offset[r]));
        part[r + 2 * (j / 4)] += p[j];
      }
      // Sixteen columns in the order of packed values (common/quantized.hpp): no bytes are permuted.
      weights[i / 16][i / 8 % 2 * 2] = ptx::pack_e4m3(p[0], p[1], p[4], p[5]);
      weights[i / 16][i / 8 % 2 * 2 + 1] = ptx::pack_e4m3(p[2], p[3], p[6], p[7]);
    }
    block_[0] = part[0] + part[2];
    block_[1] = part[1] + part[3];
  }

  /// The reference that each row of the block asks for: its largest exponent less the headroom.
  TANDEM_DEVICE void row_extreme(const Scores& scores, float (&reference)[2]) const {
    const auto value = [](Score score) { return ptx::as_float(score); };
    if (scale_ > 0)
      row_reduce(scores, reference, value, [](float a, float b) { return ptx::maximum(a, b); });
    else
      row_reduce(scores, reference, value, [](float a, float b) { return ptx::minimum(a, b); });
#pragma unroll
    for (int r = 0; r < 2; ++r) reference[r] = ptx::multiply_add(reference[r] - origin, scale_, value_log2_) - headroom;
  }

  /// The rare path: redoes a block with its true maximum.
  template <class Rescale>
  TANDEM_DEVICE void rescue(const Scores& scores, Weights& weights, Rescale rescale) {
    float reference[2], factor[2];
    row_extreme(scores, reference);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      reference[r] = ptx::maximum(reference[r], reference_[r]);
      factor[r] = ptx::exp2(reference_[r] - reference[r]);
      reference_[r] = reference[r];
      sum_[r] *= factor[r];
    }
    rescale(factor[0], factor[1]);
    exponentials(scores, weights);
  }

  float scale_ = 1, value_log2_ = 0, value_inverse_ = 1;
  float block_[2];
};

}  // namespace tandem::internal::sm90
