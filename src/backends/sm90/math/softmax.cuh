// The online softmax of one warpgroup's rows (FA-3 Algorithm 1, lines 18 to 21), on scores that stay in the registers
// where wgmma left them. A thread holds parts of two rows, `upper` and eight below; four neighbouring lanes share a
// row.
//
// Scores s become p = 2^(s * scale - reference), scale holding log2(e). The sum of p and the output carry the factor
// 2^-reference, which the final normalisation cancels; so the reference need not be the true maximum, only keep p in
// range. RowMaximum::first_block takes it from the first key block alone and looks at the sums instead of at the
// scores: should one pass `limit`, the block is redone with its true maximum (`rescue`).
//
// Where |reference| reaches 2^24 its rounding alone is a unit of the exponent. A warp that meets such scores goes over
// to `raw` references: the unscaled maximum itself, p = 2^((s - reference) * scale), through the rescue path for every
// block.
#pragma once

#include "backends/sm90/math/rows.cuh"

namespace tandem::internal::sm90 {

/// How large sums may grow on an old reference. P in bf16 has float32's range, so the whole sum is bounded (and values
/// up to 2^88 can't overflow the output). P in fp16 ends at 65,504: what one block adds is bounded, and with it each p.
template <class Element>
struct SumLimit;
template <>
struct SumLimit<bf16> {
  static constexpr float value = 0x1p40f;
  static constexpr bool of_block = false;
};
template <>
struct SumLimit<fp16> {
  static constexpr float value = 0x1p14f;
  static constexpr bool of_block = true;
};

template <class Element, int tile_key, int value_dim>
class Softmax : public RowSums {
 public:
  using Scores = float[tile_key / 2];
  using Weights = uint32_t[tile_key / 16][4];  // P, as wgmma's A operand
  using Output = float[value_dim / 2];

  /// `scale` is softmax scale * log2(e), not 0.
  TANDEM_DEVICE explicit Softmax(float scale) : scale_(scale) {}

  /// What a masked score is set to: its weight is 0 for either sign of the scale.
  TANDEM_DEVICE float masked() const { return scale_ > 0 ? -infinity : infinity; }

  /// A tile's first block: sets the reference.
  TANDEM_DEVICE void first(Scores& scores, Weights& weights, Output& output) {
    float extreme[2];
    row_extreme(scores, extreme);
    bool huge = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float reference = extreme[r] * scale_;
      // A row that sees none of the block: any later score then overflows, and the rescue finds it a reference.
      reference_[r] = reference == -infinity ? -nothing : reference;
      huge |= reference > raw_from || (reference < -raw_from && reference > -nothing);
      sum_[r] = 0;
    }
    limit_ = SumLimit<Element>::value;
    exponentials(scores, weights);
    if (ptx::any(huge || grown(0, 0))) rescue<true>(scores, weights, output, 0, 0);
  }

  /// Any later block (RowMaximum::first_block). Needs output and weights out of flight.
  TANDEM_DEVICE void next(Scores& scores, Weights& weights, Output& output) {
    begin_next(scores, weights);
    finish_next(scores, weights, output);
  }
  /// The same in two parts: the first may run beside a wgmma on output with other weights.
  TANDEM_DEVICE void begin_next(const Scores& scores, Weights& weights) {
    before_[0] = sum_[0];
    before_[1] = sum_[1];
    exponentials(scores, weights);
  }
  TANDEM_DEVICE void finish_next(const Scores& scores, Weights& weights, Output& output) {
    if (ptx::any(grown(before_[0], before_[1]))) rescue<false>(scores, weights, output, before_[0], before_[1]);
  }

  /// RowMaximum::every_block, in two parts: the first leaves P in the scores and may run beside a wgmma on output.
  TANDEM_DEVICE void update_in_place(Scores& scores) {
    float extreme[2];
    row_extreme(scores, extreme);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float reference = ptx::maximum(reference_[r], extreme[r] * scale_);
      correction_[r] = ptx::exp2(reference_[r] - reference);
      reference_[r] = reference;
      sum_[r] *= correction_[r];
    }
#pragma unroll
    for (int i = 0; i < tile_key / 2; ++i) {
      const int r = fragment_upper(i);
      scores[i] = ptx::exp2(ptx::multiply_add(scores[i], scale_, -reference_[r]));
      sum_[r] += scores[i];
    }
  }
  TANDEM_DEVICE void finish_update(const Scores& scores, Weights& weights, Output& output) {
#pragma unroll
    for (int i = 0; i < tile_key / 2; i += 2) weights[i / 8][i / 2 % 4] = ptx::pack<Element>(scores[i], scores[i + 1]);
    rescale(output, correction_[0], correction_[1]);
  }

  /// After a tile's last block: the sums of whole rows.
  TANDEM_DEVICE void finish() {
    sum_lanes();
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (raw()) reference_[r] *= scale_;
  }

 private:
  static constexpr float raw_from = 0x1p24f;
  static constexpr float always = -1;  // a limit that every sum passes

  TANDEM_DEVICE bool raw() const { return limit_ == always; }

  TANDEM_DEVICE bool grown(float before0, float before1) const {
    if constexpr (SumLimit<Element>::of_block) return ptx::maximum(sum_[0] - before0, sum_[1] - before1) > limit_;
    return ptx::maximum(sum_[0], sum_[1]) > limit_;
  }

  TANDEM_DEVICE void exponentials(const Scores& scores, Weights& weights) {
#pragma unroll
    for (int i = 0; i < tile_key / 2; i += 2) {
      const int r = fragment_upper(i);
      const float p0 = ptx::exp2(ptx::multiply_add(scores[i], scale_, -reference_[r]));
      const float p1 = ptx::exp2(ptx::multiply_add(scores[i + 1], scale_, -reference_[r]));
      sum_[r] += p0;
      sum_[r] += p1;
      weights[i / 8][i / 2 % 4] = ptx::pack<Element>(p0, p1);
    }
  }

  /// The score of each row with the largest scaled value: the largest, or for a negative scale the smallest.
  TANDEM_DEVICE void row_extreme(const Scores& scores, float (&extreme)[2]) const {
    const auto value = [](float score) { return score; };
    if (scale_ > 0)
      row_reduce(scores, extreme, value, [](float a, float b) { return ptx::maximum(a, b); });
    else
      row_reduce(scores, extreme, value, [](float a, float b) { return ptx::minimum(a, b); });
  }
  /// The rare path: redoes a block with its true maximum. The scores are untouched still. In a first block nothing
  /// depends on the old reference yet.
  template <bool is_first>
  TANDEM_DEVICE void rescue(const Scores& scores, Weights& weights, Output& output, float before0, float before1) {
    float extreme[2], factor[2];
    row_extreme(scores, extreme);
    const bool was_raw = raw();
    const bool huge = (scaled_magnitude(extreme[0]) >= raw_from || scaled_magnitude(extreme[1]) >= raw_from);
    const bool now_raw = was_raw || ptx::any(huge);
    if (now_raw) limit_ = always;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float old = reference_[r];
      if (!now_raw) {
        reference_[r] = ptx::maximum(old, extreme[r] * scale_);
        factor[r] = ptx::exp2(old - reference_[r]);
      } else if (!was_raw) {
        reference_[r] = finite(extreme[r]);
        factor[r] = ptx::exp2(ptx::multiply_add(-reference_[r], scale_, old));
      } else {
        const float candidate = finite(extreme[r]);
        reference_[r] = scale_ > 0 ? ptx::maximum(old, candidate) : ptx::minimum(old, candidate);
        factor[r] = ptx::exp2((old - reference_[r]) * scale_);
      }
    }
    sum_[0] = is_first ? 0.0f : before0 * factor[0];
    sum_[1] = is_first ? 0.0f : before1 * factor[1];
    if constexpr (!is_first) rescale(output, factor[0], factor[1]);
    if (now_raw)
      raw_exponentials(scores, weights);
    else
      exponentials(scores, weights);
  }

  TANDEM_DEVICE void raw_exponentials(const Scores& scores, Weights& weights) {
#pragma unroll
    for (int i = 0; i < tile_key / 2; i += 2) {
      const int r = fragment_upper(i);
      const float p0 = ptx::exp2((scores[i] - reference_[r]) * scale_);
      const float p1 = ptx::exp2((scores[i + 1] - reference_[r]) * scale_);
      sum_[r] += p0;
      sum_[r] += p1;
      weights[i / 8][i / 2 % 4] = ptx::pack<Element>(p0, p1);
    }
  }

  /// |score * scale|, 0 for a masked one.
  TANDEM_DEVICE float scaled_magnitude(float score) const {
    const float scaled = score * scale_;
    return scaled == -infinity ? 0.0f : __builtin_fabsf(scaled);
  }
  /// A raw reference for a row that saw nothing: as far on the masked side as floats go.
  TANDEM_DEVICE float finite(float extreme) const {
    return extreme == masked() ? (scale_ > 0 ? -nothing : nothing) : extreme;
  }

  float scale_;
  float limit_ = 0;
  float correction_[2], before_[2];
};

}  // namespace tandem::internal::sm90
