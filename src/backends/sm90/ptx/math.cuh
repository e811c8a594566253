// Special functions and packed conversions. Approximate ones flush subnormals and are within 2 ulp, as documented in
// the PTX ISA; the emulator computes them exactly and rounds.
#pragma once

#include "backends/sm90/ptx/qualifiers.cuh"
#include "backends/sm90/ptx/types.hpp"
#include "common/dtypes.hpp"

namespace tandem::ptx {

TANDEM_DEVICE float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TANDEM_DEVICE float log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TANDEM_DEVICE float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TANDEM_DEVICE float tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// a * b + c with one rounding.
TANDEM_DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
/// The larger one; the number where the other is NaN.
TANDEM_DEVICE float maximum(float a, float b) { return fmaxf(a, b); }
TANDEM_DEVICE float minimum(float a, float b) { return fminf(a, b); }

/// Two floats to two 16-bit elements in one register, `low` in the lower half.
template <class Element>
TANDEM_DEVICE uint32_t pack(float low, float high);
template <>
TANDEM_DEVICE uint32_t pack<bf16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
template <>
TANDEM_DEVICE uint32_t pack<fp16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

}  // namespace tandem::ptx
