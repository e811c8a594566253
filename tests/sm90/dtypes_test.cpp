// The conversions of common/dtypes.hpp against those of CUDA's headers, where these are: every code of fp16, bf16 and
// e4m3, and of floats all values of the upper 16 bits with lower ones on both sides of each format's ties.
#include "common/dtypes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#if defined(TANDEM_HAS_CUDA_HEADERS)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

namespace tandem {
namespace {

#if defined(TANDEM_HAS_CUDA_HEADERS)

template <class Check>
void for_each_float(const Check& check) {
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (const uint32_t low :
         {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      check(std::bit_cast<float>(high << 16 | low));
}

template <class To, class From>
uint16_t bits_of(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

TEST(Dtypes, E4m3IsCudas) {
  for_each_float([](float x) {
    const uint8_t expected = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    ASSERT_EQ(to_e4m3(x).bits, expected) << std::hexfloat << x;
  });
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    const float expected = __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3)));
    ASSERT_TRUE(same(to_float(e4m3{bits}), expected)) << code;
  }
}

TEST(Dtypes, Fp16IsCudas) {
  for_each_float([](float x) {
    if (std::isnan(x)) return;  // a NaN of CUDA's host code isn't that of its devices
    ASSERT_EQ(to_fp16(x).bits, bits_of<uint16_t>(__float2half_rn(x))) << std::hexfloat << x;
  });
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    __half_raw raw;
    raw.x = bits;
    ASSERT_TRUE(same(to_float(fp16{bits}), __half2float(__half(raw)))) << code;
  }
}

TEST(Dtypes, Bf16IsCudas) {
  for_each_float([](float x) {
    if (std::isnan(x)) return;
    ASSERT_EQ(to_bf16(x).bits, bits_of<uint16_t>(__float2bfloat16_rn(x))) << std::hexfloat << x;
  });
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    __nv_bfloat16_raw raw;
    raw.x = bits;
    ASSERT_TRUE(same(to_float(bf16{bits}), __bfloat162float(__nv_bfloat16(raw)))) << code;
  }
}

#else

TEST(Dtypes, AreCudas) { GTEST_SKIP() << "this machine has no CUDA headers to compare the conversions with"; }

#endif

/// L5: what lies beyond the largest number saturates, NaN stays NaN.
TEST(Dtypes, E4m3SaturatesAndKeepsNan) {
  for (const float x : {448.0f, 449.0f, 464.0f, 465.0f, 1e4f, HUGE_VALF}) {
    EXPECT_EQ(to_e4m3(x).bits, 0x7e) << x;
    EXPECT_EQ(to_e4m3(-x).bits, 0xfe) << x;
  }
  EXPECT_EQ(to_e4m3(NAN).bits, 0x7f);
}

}  // namespace
}  // namespace tandem
