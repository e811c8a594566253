// Shared-memory layouts and register fragments against the PTX ISA's rules, written down here once more in its words.
#include "backends/sm90/tile/layout.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "backends/sm90/variants.hpp"

namespace tandem::internal::sm90 {
namespace {

/// "Swizzling Modes": in tiles that begin at a multiple of 1024 bytes, address bits 4 and up are xored with bits 7 and
/// up; three of them at 128 bytes, two at 64, one at 32.
int swizzled_address(int address, int swizzle_bytes) {
  int result = address;
  for (int bit = 0; (16 << bit) < swizzle_bytes; ++bit) {
    if ((address >> (7 + bit)) & 1) result ^= 16 << bit;
  }
  return result;
}

class Swizzle : public testing::TestWithParam<int> {};

TEST_P(Swizzle, FollowsTheAddressRule) {
  const int row_bytes = GetParam();
  for (int row = 0; row < 192; ++row) {
    for (int piece = 0; piece < row_bytes / 16; ++piece) {
      ASSERT_EQ(swizzled_offset(row, piece, row_bytes), swizzled_address(row * row_bytes + piece * 16, row_bytes))
          << "row " << row << " piece " << piece;
    }
  }
}

TEST_P(Swizzle, PermutesThePiecesOfEachRow) {
  const int row_bytes = GetParam();
  for (int row = 0; row < 64; ++row) {
    std::set<int> pieces;
    for (int piece = 0; piece < row_bytes / 16; ++piece) {
      const int offset = swizzled_offset(row, piece, row_bytes);
      EXPECT_EQ(offset / row_bytes, row);
      EXPECT_EQ(offset % 16, 0);
      pieces.insert(offset);
    }
    EXPECT_EQ(pieces.size(), static_cast<size_t>(row_bytes / 16));
  }
}

TEST_P(Swizzle, SpreadsAColumnOverTheBanks) {
  // Eight rows' pieces of one column, which one 8x8 matrix access touches, share no bank (4 bytes, 32 of them) at 128
  // bytes, and meet at most as often as unswizzled rows of 128 bytes hold several of them otherwise.
  const int row_bytes = GetParam();
  for (int piece = 0; piece < row_bytes / 16; ++piece) {
    std::set<int> groups;
    for (int row = 0; row < 8; ++row) groups.insert(swizzled_offset(row, piece, row_bytes) % 128 / 16);
    EXPECT_EQ(groups.size(), 8U) << "piece " << piece;
  }
}

INSTANTIATE_TEST_SUITE_P(Sm90, Swizzle, testing::Values(32, 64, 128));

TEST(Fragments, CoverATileOnce) {
  for (const int columns : {8, 64, 80, 128, 176, 256}) {
    std::vector<int> seen(static_cast<size_t>(64 * columns));
    for (int warp = 0; warp < 4; ++warp) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < columns / 2; ++i) {
          const int row = fragment_row(warp, lane) + 8 * fragment_upper(i), column = fragment_column(lane, i);
          ASSERT_LT(row, 64);
          ASSERT_LT(column, columns);
          ++seen[static_cast<size_t>(row * columns + column)];
        }
      }
    }
    for (const int times : seen) ASSERT_EQ(times, 1) << columns << " columns";
  }
}

TEST(Fragments, AreThoseOfThePtxIsa) {
  // "Register fragments for wgmma.mma_async.m64nNk16", D: row = 16 * warp + lane / 4 (+ 8 for i % 4 >= 2), column =
  // i / 4 * 8 + lane % 4 * 2 + i % 2. Some values by hand.
  EXPECT_EQ(fragment_row(0, 0), 0);
  EXPECT_EQ(fragment_row(0, 31), 7);
  EXPECT_EQ(fragment_row(3, 5), 49);
  EXPECT_EQ(fragment_upper(1), 0);
  EXPECT_EQ(fragment_upper(2), 1);
  EXPECT_EQ(fragment_upper(5), 0);
  EXPECT_EQ(fragment_upper(7), 1);
  EXPECT_EQ(fragment_column(0, 0), 0);
  EXPECT_EQ(fragment_column(3, 1), 7);
  EXPECT_EQ(fragment_column(1, 6), 10);
}

template <int columns>
void check_chunks(int rows) {
  using Layout = ChunkLayout<columns>;
  SCOPED_TRACE(columns);
  EXPECT_EQ(Layout::chunks * Layout::chunk_columns, columns);
  EXPECT_EQ(static_cast<int>(Layout::swizzle), Layout::row_bytes) << "a row of a chunk is one swizzle row";
  EXPECT_EQ(Layout::bytes(rows), rows * columns * 2);
  EXPECT_EQ(Layout::chunk_offset(rows, 0), 0);
  EXPECT_EQ(Layout::chunk_offset(rows, Layout::chunks), Layout::bytes(rows)) << "chunks fill the tile";
  // Reduction step k begins at column 16 k: of chunk 16 k / chunk_columns, in its first row.
  for (int k = 0; k < columns / 16; ++k) {
    const int chunk = 16 * k / Layout::chunk_columns, column = 16 * k % Layout::chunk_columns;
    EXPECT_EQ(Layout::step_offset(rows, k), chunk * rows * Layout::row_bytes + column * 2) << "step " << k;
  }
  // Eight rows of any swizzle repeat its pattern, so that groups of eight rows are alike for wgmma's descriptor.
  for (int row = 0; row + 8 < rows; ++row) {
    EXPECT_EQ(swizzled_offset(row + 8, 1, Layout::row_bytes),
              swizzled_offset(row, 1, Layout::row_bytes) + Layout::group_bytes);
  }
}

TEST(Chunks, FillATile) {
  for (const int rows : {64, 80, 128}) {
    check_chunks<32>(rows);
    check_chunks<64>(rows);
    check_chunks<96>(rows);
    check_chunks<128>(rows);
    check_chunks<192>(rows);
    check_chunks<256>(rows);
  }
}

TEST(Chunks, OfEveryVariantBeginWhereTheSwizzleRepeats) {
  for (const forward::Variant& variant : forward_variants) {
    const auto& c = variant.config;
    for (const int columns : {c.head_dim, c.value_dim}) {
      const int row_bytes = columns % 64 == 0 ? 128 : 64;
      for (const int rows : {64, c.tile_key}) EXPECT_EQ(rows * row_bytes % (8 * row_bytes), 0) << variant.name;
    }
  }
}

}  // namespace
}  // namespace tandem::internal::sm90
