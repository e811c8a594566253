// Tensor maps: what cuTensorMapEncodeTiled asks of them, and the addresses that a ragged map's coordinates lead to.
#include "backends/sm90/tensor_maps.hpp"

#include <vector>

#include "backends/sm90/forward/params.hpp"
#include "sm90/support.hpp"

namespace tandem::internal::sm90 {
namespace {

constexpr uint64_t base = 0x7f1234560000;

/// The driver's documentation of cuTensorMapEncodeTiled, for 16-bit elements without interleave.
void expect_encodable(const TensorMapSpec& map) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(map.base) % 16, 0U);
  ASSERT_EQ(map.rank, 5);
  for (int i = 0; i < 5; ++i) {
    EXPECT_GE(map.size[i], 1U) << "dimension " << i;
    EXPECT_LE(map.size[i], uint64_t{1} << 32) << "dimension " << i;
    EXPECT_GE(map.box[i], 1U) << "dimension " << i;
    EXPECT_LE(map.box[i], 256U) << "dimension " << i;
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_GT(map.stride_bytes[i], 0U) << "stride " << i;
    EXPECT_EQ(map.stride_bytes[i] % 16, 0U) << "stride " << i;
    EXPECT_LT(map.stride_bytes[i], uint64_t{1} << 40) << "stride " << i;
  }
  EXPECT_EQ(map.box[0] * 2, static_cast<uint32_t>(map.swizzle)) << "the box is as wide as the swizzle";
}

/// As the hardware computes it: sums wrap round 64 bits.
uint64_t address(const TensorMapSpec& map, const std::vector<uint64_t>& at) {
  uint64_t result = base + at[0] * 2;
  for (size_t i = 1; i < 5; ++i) result += at[i] * map.stride_bytes[i - 1];
  return result;
}

bool inside(const TensorMapSpec& map, const std::vector<uint64_t>& at) {
  for (size_t i = 0; i < 5; ++i)
    if (at[i] >= map.size[i]) return false;
  return true;
}

TensorSpec tensor(std::vector<int64_t> size, std::vector<int64_t> stride) {
  TensorSpec spec = contiguous(Dtype::bf16, cuda(0), {1, 1, 1, 1});
  spec.rank = static_cast<int>(size.size());
  std::copy(size.begin(), size.end(), spec.size.begin());
  std::copy(stride.begin(), stride.end(), spec.stride.begin());
  return spec;
}

TensorMapSpec map_of(const TensorSpec& spec, const Side& side, int compiled, int tile_rows) {
  const int chunk = compiled % 64 == 0 ? 64 : 32;
  return attention_map(spec, reinterpret_cast<void*>(base), side, static_cast<int>(spec.size[spec.rank - 1]), chunk,
                       tile_rows);
}

TEST(DenseMap, ReachesEveryElement) {
  const TensorSpec specs[] = {
      tensor({3, 70, 4, 72}, {70 * 4 * 72, 4 * 72, 72, 1}), tensor({3, 70, 4, 72}, {4 * 70 * 72, 72, 70 * 72, 1}),
      tensor({3, 70, 4, 72}, {80, 3 * 80 * 4, 3 * 80, 1}),  // batch innermost
  };
  for (const TensorSpec& spec : specs) {
    const Side side{3, 70, 4, false};
    ASSERT_EQ(unfit_for_tma(spec, side), nullptr);
    const TensorMapSpec map = map_of(spec, side, 96, 64);
    expect_encodable(map);
    for (uint64_t b = 0; b < 3; ++b) {
      for (uint64_t row = 0; row < 70; row += 3) {
        for (uint64_t head = 0; head < 4; ++head) {
          const auto offset = b * static_cast<uint64_t>(spec.stride[0]) + row * static_cast<uint64_t>(spec.stride[1]) +
                              head * static_cast<uint64_t>(spec.stride[2]) + 8;
          const std::vector<uint64_t> at = {8, row, head, b, 0};
          EXPECT_EQ(address(map, at), base + 2 * offset);
          EXPECT_TRUE(inside(map, at));
        }
      }
    }
    EXPECT_FALSE(inside(map, {0, 70, 0, 0, 0})) << "rows end with the tensor";
    EXPECT_FALSE(inside(map, {72, 0, 0, 0, 0})) << "columns end with the tensor: the rest of the box is zeros";
  }
}

TEST(DenseMap, DimensionsOfOneElementTakeAnyStride) {
  const Side side{1, 1, 1, false};
  const TensorSpec spec = tensor({1, 1, 1, 8}, {0, 0, 0, 1});
  ASSERT_EQ(unfit_for_tma(spec, side), nullptr);
  const TensorMapSpec map = map_of(spec, side, 64, 64);
  expect_encodable(map);
  EXPECT_EQ(address(map, {3, 0, 0, 0, 0}), base + 6);
}

TEST(DenseMap, OfEveryVariantIsEncodable) {
  for (const forward::Variant& variant : forward_variants) {
    SCOPED_TRACE(variant.name);
    const auto& c = variant.config;
    const Attention a = resolved(tandem::internal::dense(2, 300, 500, 4, 2, c.head_dim, c.value_dim));
    expect_encodable(map_of(a.query, {2, 300, 4, false}, c.head_dim, 64));
    expect_encodable(map_of(a.key, {2, 500, 2, false}, c.head_dim, c.tile_key));
    expect_encodable(map_of(a.value, {2, 500, 2, false}, c.value_dim, c.tile_key));
    expect_encodable(map_of(a.out, {2, 300, 4, false}, c.value_dim, 64));
    expect_encodable(map_of(a.key, {2, 500, 2, true}, c.head_dim, c.tile_key));
  }
}

/// Rows of a sequence of `n` rows that begins `offset` rows into the tensor: see tensor_maps.hpp.
void expect_rows(const TensorMapSpec& map, const TensorSpec& spec, int64_t offset, int64_t n) {
  const uint64_t y = static_cast<uint64_t>(offset + n), wrap = uint64_t{forward::ragged_rows};
  const auto row_stride = static_cast<uint64_t>(strides(spec).row),
             head_stride = static_cast<uint64_t>(strides(spec).head);
  const auto check = [&](int64_t i) {
    const auto row = static_cast<uint64_t>(forward::ragged_rows - n + i);
    const std::vector<uint64_t> at = {16, row, 1, y, wrap};
    EXPECT_EQ(address(map, at), base + 2 * (static_cast<uint64_t>(offset + i) * row_stride + head_stride + 16))
        << "row " << i << " of " << n << " at " << offset;
    EXPECT_EQ(inside(map, at), i < n) << "row " << i << " of " << n;
  };
  for (const int64_t i : {int64_t{0}, n / 2, n - 1, n, n + 1, n + 255}) {
    if (i >= 0) check(i);
  }
}

TEST(RaggedMap, LeadsToTheRowsOfAnySequence) {
  constexpr int64_t total = (1 << 30) - 1;
  // Head-major: a head's stride must stay below 2^40 bytes; it may be far larger than a row's.
  for (const TensorSpec& spec : {tensor({total, 2, 64}, {128, 64, 1}), tensor({total, 2, 64}, {64, total * 64, 1}),
                                 tensor({total, 2, 64}, {3 * 6144, 64, 1})}) {
    const Side side{1, total, 2, true};
    ASSERT_EQ(unfit_for_tma(spec, side), nullptr);
    const TensorMapSpec map = map_of(spec, side, 64, 64);
    expect_encodable(map);
    for (const int64_t offset : {int64_t{0}, int64_t{1}, int64_t{130}, int64_t{80000} * 16, total / 2}) {
      for (const int64_t n : {0, 1, 63, 64, 129, 100000}) expect_rows(map, spec, offset, n);
    }
    expect_rows(map, spec, total - 5, 5);
    expect_rows(map, spec, 0, total);
  }
}

TEST(RaggedMap, OfDenseTensorsWithUsedLengths) {
  const TensorSpec spec = tensor({3, 100, 2, 64}, {100 * 128, 128, 64, 1});
  const Side side{3, 100, 2, true};
  ASSERT_EQ(unfit_for_tma(spec, side), nullptr);
  const TensorMapSpec map = map_of(spec, side, 64, 128);
  expect_encodable(map);
  for (const int64_t batch : {0, 1, 2}) {
    for (const int64_t used : {0, 1, 99, 100}) expect_rows(map, spec, batch * 100, used);
  }
}

TEST(RaggedMap, OfNoRowsAtAll) {
  const TensorSpec spec = tensor({2, 0, 2, 64}, {128, 128, 64, 1});
  const TensorMapSpec map = map_of(spec, {2, 0, 2, true}, 64, 128);
  expect_encodable(map);
  EXPECT_FALSE(inside(map, {0, uint64_t{forward::ragged_rows}, 0, 0, 0}));
}

TEST(RaggedMap, OneRowAndOneHead) {
  const TensorSpec spec = tensor({1, 1, 64}, {64, 64, 1});
  const TensorMapSpec map = map_of(spec, {1, 1, 1, true}, 64, 64);
  expect_encodable(map);
  EXPECT_TRUE(inside(map, {0, uint64_t{forward::ragged_rows} - 1, 0, 1, uint64_t{forward::ragged_rows}}));
}

}  // namespace
}  // namespace tandem::internal::sm90
