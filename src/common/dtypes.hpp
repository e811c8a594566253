// Bit types of the floating-point formats and their conversions, in plain C++, so that a machine without CUDA builds
// everything but the GPU kernels. Conversions round to nearest even; tests compare all of them with CUDA's headers.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem {

struct bf16 {
  uint16_t bits;
};
struct fp16 {
  uint16_t bits;
};
/// 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity, NaN is 0x7f and 0xff, the largest number 448.
struct e4m3 {
  uint8_t bits;
};

inline float to_float(float x) { return x; }

inline float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

inline float to_float(fp16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

/// NaN becomes 0x7fff with the sign dropped, as the GPU's cvt does.
inline bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

/// Overflow becomes infinity, NaN 0x7fff.
inline fp16 to_fp16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {0x7fff};
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // 65520 and above round to infinity
  if (magnitude >= 0x38800000u) {                                                // 2^-14: a normal number
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
  }
  // Adding 2^-1 (whose last mantissa bit weighs 2^-24) lets the float adder round to a multiple of 2^-24.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
}

constexpr float to_float(e4m3 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x80u) << 24;
  const uint32_t magnitude = x.bits & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude >= 8) return std::bit_cast<float>(sign | ((magnitude << 20) + 0x3c000000u));
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
}

/// Saturates at 448, infinity too; NaN becomes 0x7f, as the GPU's cvt.rn.satfinite does.
inline e4m3 to_e4m3(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint8_t sign = static_cast<uint8_t>((u >> 24) & 0x80u);
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {0x7f};
  if (magnitude >= 0x43e00000u) return {static_cast<uint8_t>(sign | 0x7eu)};  // 448
  if (magnitude >= 0x3c800000u) {                                             // 2^-6: a normal number
    const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
    return {static_cast<uint8_t>(sign | ((rounded - 0x3c000000u) >> 20))};
  }
  // Adding 2^14 (whose last mantissa bit weighs 2^-9) lets the float adder round to a multiple of 2^-9.
  const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
  return {static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u))};
}

template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
  return to_bf16(x);
}
template <>
inline fp16 from_float<fp16>(float x) {
  return to_fp16(x);
}
template <>
inline e4m3 from_float<e4m3>(float x) {
  return to_e4m3(x);
}

}  // namespace tandem
