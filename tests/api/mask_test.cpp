// common/mask.hpp against the definition, key by key.
#include "common/mask.hpp"

#include <gtest/gtest.h>

#include <random>

#include "plan/spec.hpp"

namespace tandem {
namespace {

struct Case {
  int32_t queries, keys, diagonal;
  Window window;
};

/// The definition: query i sees keys i + diagonal - left to i + diagonal + right.
bool sees(const Case& c, int64_t query, int64_t key) {
  const int64_t at = query + c.diagonal;
  return (c.window.left == Window::unlimited || key >= at - c.window.left) &&
         (c.window.right == Window::unlimited || key <= at + c.window.right);
}

void check_rows(const Case& c) {
  for (int32_t query = 0; query < c.queries; ++query) {
    const Range range = visible_keys(query, c.keys, c.diagonal, c.window);
    for (int32_t key = 0; key < c.keys; ++key) {
      ASSERT_EQ(key >= range.begin && key < range.end, sees(c, query, key))
          << "query " << query << " key " << key << " diagonal " << c.diagonal << " window " << c.window.left << ", "
          << c.window.right;
    }
    ASSERT_GE(range.begin, 0);
    ASSERT_LE(range.end, c.keys);
  }
}

void check_blocks(const Case& c, int32_t first, int32_t last, int32_t block) {
  const KeyBlocks blocks = key_blocks(first, last, c.keys, c.diagonal, c.window, block);
  ASSERT_LE(blocks.visit.begin, blocks.visit.end);
  ASSERT_GE(blocks.full.begin, blocks.visit.begin);
  ASSERT_LE(blocks.full.begin, blocks.full.end);
  ASSERT_LE(blocks.full.end, blocks.visit.end);
  for (int32_t b = 0; b * block < c.keys; ++b) {
    int seen = 0, pairs = 0;
    for (int32_t query = first; query <= last; ++query) {
      for (int32_t key = b * block; key < (b + 1) * block; ++key) {
        ++pairs;
        seen += key < c.keys && sees(c, query, key);
      }
    }
    const bool visited = b >= blocks.visit.begin && b < blocks.visit.end;
    const bool full = b >= blocks.full.begin && b < blocks.full.end;
    ASSERT_TRUE(visited || seen == 0) << "a visible key of block " << b << " is left out";
    ASSERT_EQ(full, seen == pairs) << "block " << b << " is of " << pairs << " pairs, " << seen << " of them visible";
  }
}

Case random_case(std::mt19937& random) {
  Case c;
  c.queries = 1 + static_cast<int32_t>(random() % 20);
  c.keys = static_cast<int32_t>(random() % 40);
  c.diagonal = random() % 3 == 0 ? static_cast<int32_t>(random() % 60) - 30 : c.keys - c.queries;
  if (random() % 2) c.window.left = static_cast<int32_t>(random() % 12);
  if (random() % 2) c.window.right = static_cast<int32_t>(random() % 12);
  return c;
}

TEST(Mask, VisibleKeysFollowTheDefinition) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    check_rows(random_case(random));
    if (HasFatalFailure()) return;
  }
}

TEST(Mask, BlocksHoldEveryVisibleKey) {
  std::mt19937 random(2);
  for (int i = 0; i < 6000; ++i) {
    const Case c = random_case(random);
    const auto first = static_cast<int32_t>(random() % c.queries);
    const auto last = first + static_cast<int32_t>(random() % (c.queries - first));
    check_blocks(c, first, last, 1 + static_cast<int32_t>(random() % 9));
    if (HasFatalFailure()) {
      ADD_FAILURE() << "case " << i << ": queries " << c.queries << " keys " << c.keys << " diagonal " << c.diagonal
                    << " window " << c.window.left << ", " << c.window.right << " rows " << first << ".." << last;
      return;
    }
  }
}

TEST(Mask, D3_WindowOffTheDiagonal) {
  const Case c{129, 33, 33 - 129, {32, 64}};
  EXPECT_EQ(visible_keys(31, c.keys, c.diagonal, c.window).end, 0);  // rows 0 to 31 see nothing
  EXPECT_EQ(visible_keys(32, c.keys, c.diagonal, c.window).end, 1);
  EXPECT_EQ(visible_keys(128, c.keys, c.diagonal, c.window).begin, 0);
  EXPECT_EQ(visible_keys(128, c.keys, c.diagonal, c.window).end, 33);
}

TEST(Mask, A8_CausalWithMoreQueriesThanKeys) {
  const Window causal{Window::unlimited, 0};
  EXPECT_EQ(visible_keys(1023, 1024, 1024 - 2048, causal).end, 0);
  EXPECT_EQ(visible_keys(1024, 1024, 1024 - 2048, causal).end, 1);
  EXPECT_EQ(visible_keys(2047, 1024, 1024 - 2048, causal).end, 1024);
}

TEST(Mask, LargestValuesStayWithin32Bits) {
  const auto most = static_cast<int32_t>(internal::row_limit - 1);
  for (const int32_t diagonal : {-most, -1, 0, 1, most}) {
    for (const int32_t bound : {0, most, Window::unlimited}) {
      for (const int32_t query : {0, most}) {
        const Range range = visible_keys(query, most, diagonal, {bound, bound});
        EXPECT_GE(range.begin, 0);
        EXPECT_LE(range.begin, most);
        EXPECT_GE(range.end, 0);
        EXPECT_LE(range.end, most);
        const KeyBlocks blocks = key_blocks(0, query, most, diagonal, {bound, bound}, 128);
        EXPECT_LE(blocks.visit.end, most / 128 + 1);
        EXPECT_GE(blocks.visit.begin, 0);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
