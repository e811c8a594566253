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

/// Four floats to e4m3, the first in the lowest byte; beyond 448 they saturate, NaN stays NaN.
TANDEM_DEVICE uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint32_t packed;
  asm("{\n.reg .b16 low, high;\ncvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\ncvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}\n"
      : "=r"(packed)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return packed;
}
/// The bits of a register as a number, and back.
TANDEM_DEVICE float as_float(int bits) { return __int_as_float(bits); }
TANDEM_DEVICE float as_float(float x) { return x; }
TANDEM_DEVICE int as_int(float x) { return __float_as_int(x); }
/// The `count` lowest bits, all 32 where `count` is more: a shift by 32 and more gives 0.
TANDEM_DEVICE uint32_t low_bits(int count) {
  uint32_t above;
  asm("shl.b32 %0, 1, %1;" : "=r"(above) : "r"(count));
  return above - 1;
}
/// Four of the eight bytes of b:a, which `selector` names from the lowest up, a hexadecimal digit each.
TANDEM_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) { return __byte_perm(a, b, selector); }

/// The two 16-bit elements of a register as floats.
template <class Element>
TANDEM_DEVICE void unpack(uint32_t packed, float& low, float& high);
template <>
TANDEM_DEVICE void unpack<bf16>(uint32_t packed, float& low, float& high) {
  low = __uint_as_float(packed << 16);
  high = __uint_as_float(packed & 0xffff0000u);
}
template <>
TANDEM_DEVICE void unpack<fp16>(uint32_t packed, float& low, float& high) {
  asm("{\n.reg .f16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}\n"
      : "=f"(low), "=f"(high)
      : "r"(packed));
}

/// The nearest integer of -128 to 127, even where two are as near; 0 for NaN.
TANDEM_DEVICE int round_int8(float x) {
  int rounded;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
}
TANDEM_DEVICE float magnitude(float x) { return fabsf(x); }

}  // namespace tandem::ptx
