// The seeded sweep on the GPU, each case judged by the float64 oracle, and the edges that a sweep meets too rarely.
#include "gpu/support.hpp"

namespace tandem::testing {
namespace {

using tools::Outcome;
using tools::SweepCase;

constexpr int64_t chunk = 10;

/// Cases [first, first + chunk); at least half must be of a kind that the backend serves.
void run_chunk(tools::Memory& memory, bool backward, int64_t count, int64_t first) {
  tools::SweepOptions options;
  options.backend = backend();
  options.backward = backward;
  options.seed = 20;
  options.count = count;
  const auto cases = tools::sweep_cases(options);
  int passed = 0;
  for (int64_t i = first; i < first + chunk; ++i) {
    const SweepCase& c = cases[static_cast<size_t>(i)];
    const Outcome outcome = tools::run_case(c, backend(), memory);
    EXPECT_NE(outcome.kind, Outcome::Kind::failed) << c.name() << ": " << outcome.text;
    passed += outcome.kind == Outcome::Kind::passed;
  }
  EXPECT_GE(passed, chunk / 2) << "most of what is drawn is refused";
}

class GpuSweep : public Gpu, public ::testing::WithParamInterface<int64_t> {};
class GpuBackwardSweep : public Gpu, public ::testing::WithParamInterface<int64_t> {};

constexpr int64_t forward_cases = 200, backward_cases = 80;
TEST_P(GpuSweep, Forward) { run_chunk(*memory_, false, forward_cases, GetParam()); }
TEST_P(GpuBackwardSweep, Backward) { run_chunk(*memory_, true, backward_cases, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Cases, GpuSweep, ::testing::Range(int64_t{0}, forward_cases, chunk));
INSTANTIATE_TEST_SUITE_P(Cases, GpuBackwardSweep, ::testing::Range(int64_t{0}, backward_cases, chunk));

class GpuEdges : public Gpu {
 protected:
  void check(SweepCase c) {
    c.seed = 7;
    const Outcome outcome = tools::run_case(c, backend(), *memory_);
    EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << c.name() << ": " << outcome.text;
  }
};

/// Head dims of every kernel, both dtypes in turn.
std::vector<SweepCase> every_kernel() {
  std::vector<SweepCase> list;
  for (const auto& [dim, value_dim] :
       std::vector<std::pair<int64_t, int64_t>>{{64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256}}) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
      SweepCase c;
      c.dtype = dtype;
      c.head_dim = dim;
      c.value_dim = value_dim;
      c.query_heads = 2;
      c.batch = 2;
      list.push_back(c);
    }
  }
  return list;
}

TEST_F(GpuEdges, MoreQueriesThanKeys) {
  for (SweepCase c : every_kernel()) {
    c.mask.causal = true;
    for (const auto& [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{300, 70}, {513, 512}, {200, 1}}) {
      c.queries = queries;
      c.keys = keys;
      check(c);
    }
  }
}

TEST_F(GpuEdges, WarpgroupsWithoutRows) {
  // Tiles are of 128 or 192 rows, of which each warpgroup owns 64.
  for (SweepCase c : every_kernel()) {
    c.keys = 300;
    for (const int64_t queries : {1, 63, 64, 65, 128, 129, 193, 257}) {
      c.queries = queries;
      check(c);
    }
  }
}

TEST_F(GpuEdges, UsedLengthsThatLeaveWarpgroupsWithoutRows) {
  for (SweepCase c : every_kernel()) {
    c.batch = 4;
    c.queries = 200;
    c.keys = 260;
    c.used = true;
    c.mask.causal = true;
    check(c);
    c.packed = true;
    check(c);
  }
}

TEST_F(GpuEdges, WindowsThatSkipBlocksForSomeWarpgroups) {
  for (SweepCase c : every_kernel()) {
    c.queries = c.keys = 700;
    c.batch = 1;
    for (const int64_t left : {0, 30, 100}) {
      c.mask.left = left;
      c.mask.right = 20;
      check(c);
    }
  }
}

}  // namespace
}  // namespace tandem::testing
