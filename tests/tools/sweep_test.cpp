// The sweep itself: it repeats, it covers, and it notices.
#include "tools/sweep.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tools/judge.hpp"
#include "tools/progress.hpp"

namespace tandem::tools {
namespace {

TEST(Sweep, IsAFunctionOfItsSeed) {
  const auto names = [](uint64_t seed) {
    std::string all;
    SweepOptions options;
    options.seed = seed;
    for (const auto& c : sweep_cases(options)) all += c.name() + "\n";
    return all;
  };
  EXPECT_EQ(names(1), names(1));
  EXPECT_NE(names(1), names(2));
}

TEST(Sweep, AQuickOneMeetsEveryKindOfCase) {
  SweepOptions options;
  options.quick = true;
  for (const Backend backend : {Backend::cpu, Backend::sm90}) {
    options.backend = backend;
    std::set<Dtype> dtypes;
    std::set<int64_t> dims;
    std::set<Layout> layouts;
    int causal = 0, windows = 0, packed = 0, used = 0, grouped = 0, unequal = 0;
    for (const auto& c : sweep_cases(options)) {
      dtypes.insert(c.dtype);
      dims.insert(c.head_dim);
      layouts.insert(c.layout);
      causal += c.mask.causal ? 1 : 0;
      windows += c.mask.left >= 0 || c.mask.right >= 0 ? 1 : 0;
      packed += c.packed ? 1 : 0;
      used += c.used ? 1 : 0;
      grouped += c.query_heads > c.key_heads ? 1 : 0;
      unequal += c.queries != c.keys ? 1 : 0;
      EXPECT_EQ(c.query_heads % c.key_heads, 0) << c.name();
      EXPECT_GT(c.query_heads, 0) << c.name();
    }
    EXPECT_EQ(dtypes.size(), backend == Backend::cpu ? 3U : 2U);
    EXPECT_GE(dims.size(), 10U);
    EXPECT_EQ(layouts.size(), 3U);
    for (const int count : {causal, windows, packed, used, grouped, unequal}) EXPECT_GE(count, 5);
  }
}

TEST(Sweep, PoisonsWhatMustNotBeRead) {
  SweepCase c;
  c.batch = 2;
  c.queries = c.keys = 40;
  c.used = true;
  const Job job = make_job(c);
  const Sequences s = sequences(job);
  const auto keys = floats(array_of(job.key), "key");
  const size_t row = 64;
  for (size_t b = 0; b < 2; ++b) {
    for (size_t i = 0; i < 40; ++i) {
      EXPECT_EQ(std::isnan(keys[(b * 40 + i) * row]), static_cast<int64_t>(i) >= s.key_count[b]) << b << " " << i;
    }
  }
  for (const float x : floats(array_of(job.out), "out")) ASSERT_TRUE(std::isnan(x));
}

TEST(Sweep, AnOutputThatWasNeverWrittenFails) {
  SweepCase c;
  c.queries = c.keys = 8;
  EXPECT_FALSE(judge(make_job(c), -1).ok);
}

TEST(Sweep, TheCpuPassesSomeOfIt) {
  if (!available(Backend::cpu).ok()) GTEST_SKIP() << available(Backend::cpu).message;
  SweepOptions options;
  options.backend = Backend::cpu;
  options.quick = true;
  options.seed = 5;
  options.count = 20;
  const auto memory = host_memory();
  for (const auto& c : sweep_cases(options)) {
    const Outcome outcome = run_case(c, Backend::cpu, *memory);
    EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << c.name() << ": " << outcome.text;
  }
}

TEST(Progress, DrawsWithinItsColumns) {
  EXPECT_EQ(progress_line(0, 4, 0, "a", 80), "[........................] 0/4  0:00  a");
  EXPECT_EQ(progress_line(2, 4, 61, "b", 80), "[############............] 2/4  1:01  b");
  EXPECT_EQ(progress_line(4, 4, 1, "c", 80).find('.'), std::string::npos);
  EXPECT_EQ(progress_line(1, 4, 1, std::string(200, 'x'), 50).size(), 50U);
  EXPECT_NO_THROW(progress_line(0, 0, 0, "", 80));
}

}  // namespace
}  // namespace tandem::tools
