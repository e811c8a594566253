// Masks at the places where kernels have gone wrong: rows before the first key, unlimited windows beside large
// positions, tiles of 64 rows of which some don't exist. Compiled twice, the second time so that a signed overflow ends
// the program. That finds sums that are computed; nvcc has also computed one that the source guards, and so hid all
// keys from rows before the first: for this, the sums there wrap by definition, which the last test here checks, and A8
// runs on the GPU. (tests/api/mask_test.cpp has the definition on small random cases.)
#include "common/mask.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tandem {
namespace {

constexpr int32_t unlimited = Window::unlimited;

struct Shape {
  int32_t queries, keys, diagonal;
};

/// By 64-bit sums, so that no overflow can hide in both.
bool sees(const Shape& s, Window window, int64_t query, int64_t key) {
  const int64_t at = query + s.diagonal;
  if (key < 0 || key >= s.keys) return false;
  return (window.left == unlimited || key >= at - window.left) &&
         (window.right == unlimited || key <= at + window.right);
}

std::vector<Shape> shapes() {
  std::vector<Shape> list;
  for (const int32_t queries : {1, 63, 64, 65, 200, 260}) {
    for (const int32_t keys : {0, 1, 5, 79, 80, 128, 129, 300}) list.push_back({queries, keys, keys - queries});
  }
  list.push_back({100, 200, -350});  // a diagonal of context parallelism: everything lies before the keys
  list.push_back({100, 200, 350});
  list.push_back({100, 200, -30});
  return list;
}

std::vector<Window> windows() {
  std::vector<Window> list;
  for (const int32_t left : {0, 1, 40, 130, 1 << 20, unlimited}) {
    for (const int32_t right : {0, 1, 40, 130, 1 << 20, unlimited}) list.push_back({left, right});
  }
  return list;
}

std::string text(const Shape& s, Window w) {
  return std::to_string(s.queries) + " queries, " + std::to_string(s.keys) + " keys, diagonal " +
         std::to_string(s.diagonal) + ", window " + std::to_string(w.left) + ", " + std::to_string(w.right);
}

TEST(MaskOfTiles, RowsSeeWhatTheDefinitionSays) {
  for (const Shape& s : shapes()) {
    for (const Window window : windows()) {
      for (int32_t query = 0; query < s.queries; ++query) {
        const Range range = visible_keys(query, s.keys, s.diagonal, window);
        for (int32_t key = 0; key < s.keys; ++key) {
          ASSERT_EQ(key >= range.begin && key < range.end, sees(s, window, query, key))
              << text(s, window) << ", query " << query << ", key " << key;
        }
      }
    }
  }
}

/// Whether some row, and whether every row, of [first, last] sees some, or every, key of the block.
void check_block(const Shape& s, Window window, int32_t first, int32_t last, int32_t tile_key) {
  const KeyBlocks blocks = key_blocks(first, last, s.keys, s.diagonal, window, tile_key);
  for (int32_t block = 0; block * tile_key < s.keys + tile_key; ++block) {
    bool any = false, all = true;
    for (int32_t query = first; query <= last; ++query) {
      for (int32_t key = block * tile_key; key < (block + 1) * tile_key; ++key) {
        const bool seen = sees(s, window, query, key);
        any = any || seen;
        all = all && seen;
      }
    }
    const bool visited = block >= blocks.visit.begin && block < blocks.visit.end;
    const bool full = block >= blocks.full.begin && block < blocks.full.end;
    ASSERT_TRUE(visited || !any) << text(s, window) << ", block " << block << " is left out";
    ASSERT_EQ(full, all) << text(s, window) << ", block " << block;
  }
}

TEST(MaskOfTiles, BlocksOfEveryTileHoldWhatItsRowsSee) {
  for (const Shape& s : shapes()) {
    for (const Window window : windows()) {
      for (const int32_t tile_key : {64, 80}) {
        for (int32_t first = 0; first < s.queries; first += 64) {
          check_block(s, window, first, std::min(first + 64, s.queries) - 1, tile_key);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(MaskOfTiles, A8_RowsBeforeTheFirstKeySeeNothing) {
  for (const int32_t queries : {2048, 1 << 20, (1 << 30) - 1}) {
    const int32_t keys = 1024, diagonal = keys - queries, hidden = queries - keys;
    for (const int32_t left : {0, 64, unlimited}) {
      for (const int32_t row : {0, 1, hidden / 2, hidden - 1}) {
        const Range range = visible_keys(row, keys, diagonal, {left, 0});
        EXPECT_LE(range.end, range.begin) << "row " << row << " of " << queries << ", left " << left;
      }
      const Range first = visible_keys(hidden, keys, diagonal, {left, 0});
      EXPECT_EQ(first.begin, 0);
      EXPECT_EQ(first.end, 1);
    }
  }
}

TEST(MaskOfTiles, UnlimitedWindowsBesideLargePositions) {
  constexpr int32_t most = (1 << 30) - 1;
  for (const int32_t diagonal : {-most, -1, 0, 1, most}) {
    for (const int32_t query : {0, 1, most / 2, most}) {
      const Range all = visible_keys(query, most, diagonal, {unlimited, unlimited});
      EXPECT_EQ(all.begin, 0);
      EXPECT_EQ(all.end, most);
      const int64_t at = static_cast<int64_t>(query) + diagonal;
      const Range causal = visible_keys(query, most, diagonal, {unlimited, 0});
      EXPECT_EQ(causal.begin, 0);
      EXPECT_EQ(causal.end, std::clamp<int64_t>(at + 1, 0, most));
      const Range rest = visible_keys(query, most, diagonal, {0, unlimited});
      EXPECT_EQ(rest.begin, std::clamp<int64_t>(at, 0, most));
      EXPECT_EQ(rest.end, most);
      const Range wide = visible_keys(query, most, diagonal, {most, most});
      EXPECT_EQ(wide.begin, std::clamp<int64_t>(at - most, 0, most));
      EXPECT_EQ(wide.end, std::clamp<int64_t>(at + most + 1, 0, most));
    }
  }
}

TEST(MaskOfTiles, SumsBesideUnlimitedWindowsWrap) {
  static_assert(wrapping_sum(INT32_MAX, 1) == INT32_MIN, "not a constant if it overflowed");
  static_assert(wrapping_sum(-5, -INT32_MAX) == INT32_MAX - 3);
  EXPECT_EQ(wrapping_sum(INT32_MAX, INT32_MAX), -2);
}

}  // namespace
}  // namespace tandem
