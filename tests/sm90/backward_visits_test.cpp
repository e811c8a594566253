// Which query blocks a tile of keys visits, and which tiles come to a block before it: backward/visits.hpp. Blocks of
// threads wait for each other by these numbers, so that a wrong one would stop them for good.
#include "backends/sm90/backward/visits.hpp"

#include <gtest/gtest.h>

namespace tandem::internal::sm90::backward {
namespace {

/// Counts the tiles that visit each block, in order, and compares.
template <int tile_query, int tile_key>
void expect_consistent(const Scope& s, bool upwards) {
  const int32_t blocks = ceil_divide(s.queries, tile_query), tiles = ceil_divide(s.keys, tile_key);
  for (int32_t block = 0; block < blocks; ++block) {
    int32_t before = 0;
    for (int32_t i = 0; i < tiles; ++i) {
      const int32_t tile = upwards ? tiles - 1 - i : i;
      const Range visit = visited_blocks<tile_query, tile_key>(s, tile).visit;
      ASSERT_LE(visit.end, blocks);
      if (block < visit.begin || block >= visit.end) continue;
      ASSERT_EQ((tiles_before<tile_query, tile_key>(s, tile, block, upwards)), before)
          << "tile " << tile << ", block " << block;
      const Range first = first_visited<tile_query, tile_key>(s, tile, upwards);
      ASSERT_EQ(block >= first.begin && block < first.end, before == 0);
      ++before;
    }
  }
}

template <int tile_query, int tile_key>
void expect_consistent_scopes() {
  constexpr int32_t none = Window::unlimited;
  for (int32_t queries = 1; queries <= 60; queries += 7)
    for (int32_t keys = 1; keys <= 70; keys += 9)
      for (const int32_t diagonal : {keys - queries, 0, 5, -7, -200, 200})
        for (const int32_t left : {none, 0, 1, 5, 13, 40})
          for (const int32_t right : {none, 0, 1, 5, 13, 40}) {
            SCOPED_TRACE(testing::Message() << queries << " queries, " << keys << " keys, diagonal " << diagonal
                                            << ", window " << left << ", " << right);
            expect_consistent<tile_query, tile_key>({queries, keys, diagonal, {left, right}}, false);
            expect_consistent<tile_query, tile_key>({queries, keys, diagonal, {left, right}}, true);
            if (testing::Test::HasFatalFailure()) return;
          }
}

TEST(BackwardVisits, TilesOfSquareBlocks) { expect_consistent_scopes<8, 8>(); }
TEST(BackwardVisits, TilesOfSmallBlocks) { expect_consistent_scopes<4, 8>(); }
TEST(BackwardVisits, TilesOfLargeBlocks) { expect_consistent_scopes<8, 4>(); }

TEST(BackwardVisits, HideWhatNobodySees) {
  const Scope causal{128, 128, 0, {Window::unlimited, 0}};
  const KeyBlocks seen = visited_blocks<32, 64>(causal, 1);
  EXPECT_EQ(seen.visit.begin, 2);
  EXPECT_EQ(seen.visit.end, 4);
  EXPECT_EQ((visited_blocks<32, 64>(causal, 2).visit.end), 0) << "beyond the keys";
  const Range none = first_visited<32, 64>(causal, 1, false), all = first_visited<32, 64>(causal, 1, true);
  EXPECT_EQ(none.begin, none.end) << "the first tile sees all blocks";
  EXPECT_EQ(all.begin, 2) << "the last tile comes first";
  EXPECT_EQ(all.end, 4);
}

}  // namespace
}  // namespace tandem::internal::sm90::backward
