// Conversions of arrays.
#include "tools/io/array.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/tools/support.hpp"

namespace tandem::tools {
namespace {

TEST(Array, ConvertsThroughEveryFloatType) {
  const std::vector<float> values = {0.0F, -1.5F, 3.0F, 65504.0F, 1.0F / 3};
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const auto back = floats(array_of(values, {5}, dtype), "test");
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], std::abs(values[i]) / 256) << i;
  }
}

TEST(Array, RoundsToNearestEven) {
  const Array array = array_of({1 + 0x1p-9F, 1 + 3 * 0x1p-9F}, {2});
  const auto rounded = floats(convert(array, Dtype::bf16), "test");
  EXPECT_EQ(rounded[0], 1.0F);  // ties go to the even neighbour
  EXPECT_EQ(rounded[1], 1 + 0x1p-7F);
}

TEST(Array, RefusesToMixIntegersAndFloats) {
  const Array numbers{Dtype::int32, {1}, Bytes(4)};
  expect_failure([&] { floats(numbers, "query.npy"); }, "query.npy: elements are int32");
  expect_failure([&] { integers(array_of({1.0F}, {1}), "cu.npy"); }, "int32 or int64 is needed");
}

TEST(Array, CountsElementsWithoutOverflow) {
  EXPECT_EQ(count_elements({2, 3, 4}, "f"), 24);
  EXPECT_EQ(count_elements({}, "f"), 1);
  EXPECT_EQ(count_elements({0, 1LL << 40}, "f"), 0);
  expect_failure([] { count_elements({1LL << 32, 1LL << 32}, "big.npy"); }, "big.npy");
  expect_failure([] { count_elements({-1}, "f"); }, "negative");
}

}  // namespace
}  // namespace tandem::tools
