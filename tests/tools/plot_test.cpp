// The grid, its FLOP counts, and the script that gnuplot is given.
#include "tools/bench/plot.hpp"

#include <gtest/gtest.h>

#include "tests/tools/support.hpp"

namespace tandem::tools {
namespace {

TEST(Grid, IsThePapers) {
  Grid grid;
  grid.head_dims = {64, 96, 256};
  grid.lengths = {512, 16384};
  const auto cases = cases_of(grid);
  ASSERT_EQ(cases.size(), 12U);
  EXPECT_EQ(cases[0].batch, 32);
  EXPECT_EQ(cases[0].heads, 32);
  EXPECT_EQ(cases[4].heads, 21) << "2048 / 96 is rounded down";
  EXPECT_EQ(cases.back().batch, 1);
  EXPECT_EQ(cases.back().heads, 8);
}

TEST(Grid, CountsFlopAsThePaper) {
  BenchCase c;
  c.head_dim = 128;
  c.seqlen = 1024;
  c.batch = 2;
  c.heads = 3;
  EXPECT_EQ(c.flop(), 4.0 * 2 * 3 * 1024 * 1024 * 128);
  c.causal = true;
  EXPECT_EQ(c.flop(), 2.0 * 2 * 3 * 1024 * 1024 * 128);
  c.pass = Pass::backward;
  EXPECT_EQ(c.flop(), 5.0 * 2 * 3 * 1024 * 1024 * 128);
}

TEST(Plot, HasAPanelForEachDimAndMaskAndSkipsAbsentMethods) {
  std::vector<BenchRow> rows;
  Grid grid;
  grid.head_dims = {64, 128};
  grid.lengths = {512, 1024};
  for (const auto& c : cases_of(grid)) rows.push_back({c, 100.0, {}, {}, 0, ""});
  const std::string script = plot_script(rows, "it's", "a.svg", "a'b.svg");
  for (const char* part : {"head dim 64, full", "head dim 128, causal", "set output 'a''b.svg'", "'it''s'",
                           "512 100.00", "set terminal svg", "layout 2,2"}) {
    EXPECT_NE(script.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(script.find("'cuBLAS'"), std::string::npos);
  rows[0].cublas = 700;
  EXPECT_NE(plot_script(rows, "t", "a.png", "o").find("'cuBLAS'"), std::string::npos);
}

TEST(Plot, RefusesOtherFormats) {
  expect_failure<UsageError>([] { require_plot("a.pdf"); }, ".png or .svg");
}

}  // namespace
}  // namespace tandem::tools
