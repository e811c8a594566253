// The order of tiles: every tile of every head once, and in causal launches the longest first within a section.
#include "common/tile_order.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

/// All orders of some shapes, sections that don't divide the heads among them.
std::vector<TileOrder> orders(bool longest_first) {
  std::vector<TileOrder> list;
  for (const int32_t tiles : {1, 2, 3, 7, 16, 65}) {
    for (const int32_t heads : {1, 2, 5, 16, 33}) {
      for (const int32_t section : {1, 2, 3, 16, 33}) {
        if (section <= heads) list.push_back({tiles, heads, section, longest_first});
      }
    }
  }
  return list;
}

std::string text(const TileOrder& order) {
  return std::to_string(order.tiles_per_head) + " tiles, " + std::to_string(order.heads) + " heads, sections of " +
         std::to_string(order.section);
}

TEST(TileOrder, VisitsEachTileOnce) {
  for (const bool longest_first : {false, true}) {
    for (const TileOrder& order : orders(longest_first)) {
      std::vector<int> visits(static_cast<size_t>(order.tiles_per_head * order.heads));
      for (int32_t index = 0; index < order.tiles_per_head * order.heads; ++index) {
        const TilePosition position = order.at(index);
        ASSERT_GE(position.tile, 0) << text(order);
        ASSERT_LT(position.tile, order.tiles_per_head) << text(order);
        ASSERT_GE(position.head, 0) << text(order);
        ASSERT_LT(position.head, order.heads) << text(order);
        ++visits[static_cast<size_t>(position.head * order.tiles_per_head + position.tile)];
      }
      for (const int count : visits) ASSERT_EQ(count, 1) << text(order);
    }
  }
}

TEST(TileOrder, LongestFirstWithinASection) {
  for (const TileOrder& order : orders(true)) {
    int32_t section = 0, last_tile = order.tiles_per_head;
    for (int32_t index = 0; index < order.tiles_per_head * order.heads; ++index) {
      const TilePosition position = order.at(index);
      const int32_t of = position.head / order.section;
      ASSERT_GE(of, section) << "a section is done before the next begins: " << text(order);
      if (of > section) last_tile = order.tiles_per_head;
      section = of;
      ASSERT_LE(position.tile, last_tile) << text(order);
      last_tile = position.tile;
    }
    EXPECT_EQ(order.at(0).tile, order.tiles_per_head - 1);
  }
}

TEST(TileOrder, HeadsOneByOneOtherwise) {
  const TileOrder order{4, 3, 2, false};
  for (int32_t index = 0; index < 12; ++index) {
    EXPECT_EQ(order.at(index).head, index / 4);
    EXPECT_EQ(order.at(index).tile, index % 4);
  }
}

TEST(TileOrder, LargestLaunch) {
  // 2^31 - 1 tiles are the most that a plan allows: no sum may leave 32 bits.
  const TileOrder order{1, INT32_MAX, 16, true};
  EXPECT_EQ(order.at(INT32_MAX - 1).head, INT32_MAX - 1);
  const TileOrder long_heads{1 << 20, 2047, 2047, true};
  const TilePosition last = long_heads.at(2047 * (1 << 20) - 1);
  EXPECT_EQ(last.tile, 0);
  EXPECT_EQ(last.head, 2046);
}

}  // namespace
}  // namespace tandem
