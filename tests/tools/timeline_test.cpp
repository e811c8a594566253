// Reading and drawing of timelines.
#include "tools/trace/timeline.hpp"

#include <gtest/gtest.h>

#include "tests/tools/support.hpp"

namespace tandem::tools {
namespace {

const std::string trace = R"({"traceEvents": [
{"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "TMA"}},
{"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "warpgroup 1"}},
{"ph": "X", "pid": 0, "tid": 0, "cat": "load", "name": "load K<0>", "ts": 0.1, "dur": 0.6},
{"ph": "X", "pid": 0, "tid": 0, "cat": "load", "name": "load V<0>", "ts": 0.2, "dur": 0.6},
{"ph": "X", "pid": 0, "tid": 1, "cat": "wait", "name": "wait full[0]", "ts": 0, "dur": 0.7}
]})";

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Timeline, ReadsChromesFormat) {
  const auto spans = parse_trace(trace, "t.json");
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0].track, "TMA");
  EXPECT_EQ(spans[0].kind, "load");
  EXPECT_NEAR(spans[0].begin, 100, 1e-6);
  EXPECT_NEAR(spans[0].end, 700, 1e-6);
  expect_failure([] { parse_trace("[]", "t.json"); }, "t.json: not a trace");
  expect_failure([] { parse_trace("{\"traceEvents\": [{\"ph\": \"X\"}]}", "t.json"); }, "malformed");
}

TEST(Timeline, CutsToAWindow) {
  const auto spans = within(parse_trace(trace, "t"), 150, 750);
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0].begin, 150);
  EXPECT_EQ(spans[1].end, 750);
  EXPECT_TRUE(within(parse_trace(trace, "t"), 900, 1000).empty());
}

TEST(Timeline, DrawsEverySpanAndEscapesText) {
  const std::string svg = draw_timeline(parse_trace(trace, "t"), "a & b");
  EXPECT_EQ(count(svg, "<title>"), 3U);
  EXPECT_NE(svg.find("load K&lt;0>"), std::string::npos);
  EXPECT_NE(svg.find("a &amp; b"), std::string::npos);
  EXPECT_NE(svg.find(">warpgroup 1<"), std::string::npos);
  EXPECT_NO_THROW(draw_timeline({}, "nothing"));
}

}  // namespace
}  // namespace tandem::tools
