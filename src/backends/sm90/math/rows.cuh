// What every online softmax keeps of a thread's two rows, and what it does with whole rows. Four neighbouring lanes
// share a row.
#pragma once

#include "backends/sm90/ptx/ptx.hpp"
#include "backends/sm90/tile/layout.hpp"

namespace tandem::internal::sm90 {

/// Sums of weights 2^(score - reference); scores hold log2(e). The sum and the output carry the factor 2^-reference,
/// which the final normalisation cancels.
class RowSums {
 public:
  /// Adds a sink: a logit, natural, that joins the denominator alone. Returns the factor that the output must take. A
  /// row that saw no key stays one.
  TANDEM_DEVICE float add_sink(int r, float sink) {
    if (sum_[r] == 0) return 1;
    const float logit = sink * log2_e;
    const float reference = ptx::maximum(reference_[r], logit);
    const float factor = ptx::exp2(reference_[r] - reference);
    sum_[r] = sum_[r] * factor + ptx::exp2(logit - reference);
    reference_[r] = reference;
    return factor;
  }
  TANDEM_DEVICE float sum(int r) const { return sum_[r]; }
  TANDEM_DEVICE float reference(int r) const { return reference_[r]; }
  /// The natural logarithm of the sum of exponentials; -inf for a row that saw no key.
  TANDEM_DEVICE float lse(int r) const {
    return sum_[r] == 0 ? -infinity : (reference_[r] + ptx::log2(sum_[r])) * ln_2;
  }

 protected:
  static constexpr float infinity = __builtin_huge_valf();
  static constexpr float nothing = 3e38f;  // its negative: the reference of a row that saw no key yet
  static constexpr float log2_e = 1.4426950408889634f;
  static constexpr float ln_2 = 0.6931471805599453f;

  /// Sums of whole rows.
  TANDEM_DEVICE void sum_lanes() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum_[r] += ptx::shuffle_xor(sum_[r], 1);
      sum_[r] += ptx::shuffle_xor(sum_[r], 2);
    }
  }

  float reference_[2], sum_[2];
};

/// The largest (or, with `better` reversed, smallest) score of each row; `value` reads an accumulator.
template <int count, class Score, class Value, class Operation>
TANDEM_DEVICE void row_reduce(const Score (&scores)[count], float (&result)[2], Value value, Operation better) {
  float part[4] = {value(scores[0]), value(scores[2]), value(scores[1]), value(scores[3])};  // two chains a row
#pragma unroll
  for (int i = 4; i < count; ++i) {
    float& chain = part[fragment_upper(i) + 2 * (i & 1)];
    chain = better(chain, value(scores[i]));
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float x = better(part[r], part[r + 2]);
    x = better(x, ptx::shuffle_xor(x, 1));
    result[r] = better(x, ptx::shuffle_xor(x, 2));
  }
}

template <int count>
TANDEM_DEVICE void rescale(float (&output)[count], float factor0, float factor1) {
#pragma unroll
  for (int i = 0; i < count; ++i) output[i] *= fragment_upper(i) ? factor1 : factor0;
}

}  // namespace tandem::internal::sm90
