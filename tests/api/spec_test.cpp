// Properties of tensor specs: row-major strides, overlap against brute force, comparison of strides.
#include <algorithm>
#include <random>
#include <set>

#include "support.hpp"

namespace tandem::testing {
namespace {

using namespace internal;  // NOLINT(google-build-using-namespace)

TEST(Spec, ContiguousIsRowMajor) {
  const TensorSpec spec = contiguous(Dtype::fp16, cuda(3), {2, 3, 5, 7});
  EXPECT_EQ(spec.rank, 4);
  EXPECT_EQ(spec.device, cuda(3));
  EXPECT_EQ((std::vector<int64_t>(spec.stride.begin(), spec.stride.end())), (std::vector<int64_t>{105, 35, 7, 1, 0}));
  EXPECT_EQ(elements(spec), 210);
  EXPECT_STREQ(shape_text(spec).text, "(2, 3, 5, 7)");
}

TEST(Spec, ContiguousTakesAnything) {
  EXPECT_EQ(contiguous(Dtype::fp16, cpu(), {}).rank, 0);
  EXPECT_EQ(contiguous(Dtype::fp16, cpu(), {1, 2, 3, 4, 5, 6, 7}).rank, 7);  // refused when planned
  const int64_t large = INT64_C(1) << 40;
  const TensorSpec spec = contiguous(Dtype::fp16, cpu(), {large, large, large});
  expect_fault(check_spec("query", spec, true), Code::invalid_argument, "query", "overflows");
  const TensorSpec hidden = contiguous(Dtype::fp16, cpu(), {1, large, large, large});
  EXPECT_FALSE(check_spec("query", hidden, true).ok());
}

TEST(Spec, ShapeTextOfLargestFits) {
  const TensorSpec spec = contiguous(Dtype::fp16, cpu(), {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN});
  const std::string text = shape_text(spec).text;
  EXPECT_EQ(text.back(), ')');
}

/// Whether two elements share an address, by writing all of them down.
bool overlaps(const TensorSpec& spec) {
  std::set<int64_t> seen;
  int64_t index[3];
  for (index[0] = 0; index[0] < spec.size[0]; ++index[0]) {
    for (index[1] = 0; index[1] < spec.size[1]; ++index[1]) {
      for (index[2] = 0; index[2] < spec.size[2]; ++index[2]) {
        const int64_t at = index[0] * spec.stride[0] + index[1] * spec.stride[1] + index[2] * spec.stride[2];
        if (!seen.insert(at).second) return true;
      }
    }
  }
  return false;
}

TEST(Spec, NoOverlapIsMissed) {
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    TensorSpec spec = contiguous(Dtype::fp32, cpu(), {1, 1, 1});
    for (int d = 0; d < 3; ++d) {
      spec.size[d] = random() % 5;
      spec.stride[d] = random() % 13;
    }
    const bool distinct = check_distinct("out", spec).ok();
    if (distinct) {
      ++accepted;
      EXPECT_FALSE(overlaps(spec)) << shape_text(spec).text << " strides " << spec.stride[0] << ", " << spec.stride[1]
                                   << ", " << spec.stride[2];
    }
  }
  EXPECT_GT(accepted, 300);
}

TEST(Spec, EveryTransposeOfAPaddedTensorIsDistinct) {
  std::array<int, 3> order{0, 1, 2};
  do {
    TensorSpec spec = contiguous(Dtype::fp32, cpu(), {3, 4, 5});
    int64_t stride = 1;
    for (const int d : order) {
      spec.stride[d] = stride;
      stride *= spec.size[d] + 2;
    }
    EXPECT_TRUE(check_distinct("out", spec).ok());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Spec, SameStridesLooksAtThoseThatMatter) {
  TensorSpec a = contiguous(Dtype::fp32, cpu(), {1, 4, 5}), b = a;
  b.stride[0] = 99;
  EXPECT_TRUE(same_strides(a, b));
  b.stride[1] = 6;
  EXPECT_FALSE(same_strides(a, b));
  a.size[2] = b.size[2] = 0;
  EXPECT_TRUE(same_strides(a, b));
}

TEST(Spec, StridesOfAnEmptyTensorMayBeAnything) {
  TensorSpec spec = contiguous(Dtype::fp32, cpu(), {1, 0, 2, 16});
  spec.stride = {0, 0, 0, 0};  // as numpy has them
  EXPECT_TRUE(check_spec("key", spec, true).ok());
  spec.stride = {-1, 8, 0, -3};
  EXPECT_TRUE(check_spec("key", spec, true).ok());
  spec.size[1] = 1;
  EXPECT_FALSE(check_spec("key", spec, true).ok());
}

TEST(Spec, ElementBytes) {
  EXPECT_EQ(element_bytes(Dtype::fp32), 4);
  EXPECT_EQ(element_bytes(Dtype::bf16), 2);
  EXPECT_EQ(element_bytes(Dtype::e4m3), 1);
  EXPECT_EQ(element_bytes(Dtype::int64), 8);
  EXPECT_EQ(element_bytes(Dtype::none), 0);
  EXPECT_EQ(element_bytes(static_cast<Dtype>(50)), 0);
}

}  // namespace
}  // namespace tandem::testing
