// Every compiled forward kernel on small shapes of every sort, with several seeds of the emulator: no report of its
// checks, the same bytes for every seed, and the result within the oracle's bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/sm90/variants.hpp"
#include "tests/emulator/kernels.hpp"
#include "tools/judge.hpp"
#include "tools/sweep.hpp"

namespace tandem::tools {
namespace {

constexpr uint64_t most_seeds = 5;
constexpr int most_shapes = 18;

struct Shape {
  const char* name;
  int64_t batch, queries, keys, query_heads, key_heads;
  Mask mask;
  bool packed = false, used = false;
  Layout layout = Layout::row_major;
  int64_t fewer_columns = 0;  // than the kernel's head dim, where that leaves a dim that the kernel serves
};

Mask causal(int64_t left = -1) {
  Mask mask;
  mask.causal = true;
  mask.left = left;
  return mask;
}
Mask window(int64_t left, int64_t right) {
  Mask mask;
  mask.left = left;
  mask.right = right;
  return mask;
}

const Shape shapes[] = {
    // Last tiles that leave whole warpgroups without rows; more queries than keys.
    {"long_causal", 1, 1000, 1111, 1, 1, causal()},
    {"more_queries", 1, 450, 333, 1, 1, {}},
    {"more_queries_causal", 1, 700, 333, 1, 1, causal()},
    {"more_queries_window", 1, 450, 300, 1, 1, window(100, 0)},
    {"full", 1, 256, 256, 2, 2, {}},
    {"causal", 1, 200, 200, 2, 1, causal()},
    {"causal_fewer_queries", 1, 70, 300, 2, 2, causal()},
    {"causal_more_queries", 1, 260, 90, 2, 2, causal()},
    {"window", 1, 193, 290, 2, 1, window(60, 20)},
    {"causal_window", 2, 129, 257, 2, 2, causal(0)},
    {"one_query", 2, 1, 333, 4, 1, {}},
    {"one_key", 1, 65, 1, 2, 2, {}},
    {"packed", 3, 150, 210, 2, 1, causal(), true},
    {"packed_used", 2, 130, 190, 2, 2, {}, true, true},
    {"used", 3, 100, 140, 2, 1, causal(), false, true},
    {"head_major", 2, 127, 128, 2, 2, {}, false, false, Layout::head_major},
    // Lengths that suit other tiles than those above.
    {"full_192", 1, 192, 256, 2, 1, {}},
    {"full_128", 1, 128, 192, 2, 2, {}},
    {"causal_384", 1, 384, 384, 1, 1, causal()},
    {"causal_64", 2, 64, 64, 2, 1, causal()},
    {"window_180", 1, 180, 180, 2, 2, window(30, 30)},
    {"packed_190", 2, 190, 190, 2, 1, {}, true},
    {"packed_120", 2, 120, 60, 2, 1, causal(), true},
    {"used_190", 2, 190, 64, 2, 2, {}, false, true},
    {"used_60", 3, 60, 60, 2, 2, causal(), true, true},
    {"keys_240", 1, 100, 240, 2, 1, {}},
    {"keys_80", 2, 70, 80, 2, 2, {}},
    {"keys_160", 1, 128, 160, 2, 1, window(200, 90)},
    {"keys_320", 1, 65, 320, 2, 2, {}},
    {"packed_160", 2, 120, 160, 2, 1, {}, true},
    {"used_240", 2, 128, 240, 2, 2, {}, false, true},
    {"packed_used_80", 3, 30, 80, 2, 1, {}, true, true},
    {"queries_185", 1, 185, 100, 2, 1, {}},
    {"causal_192", 1, 192, 300, 2, 2, causal()},
    {"window_192", 2, 192, 192, 2, 1, window(100, 150)},
    {"head_major_190", 1, 190, 310, 2, 2, causal(7), false, false, Layout::head_major},
    {"padded_narrow", 1, 191, 129, 2, 2, causal(), false, false, Layout::padded, 8},
};

std::vector<KernelInfo> kernels() { return emulated_kernels(internal::sm90::forward_variants); }

class ForwardKernel : public testing::TestWithParam<size_t> {};

SweepCase case_of(const KernelInfo& kernel, const Shape& shape) {
  SweepCase c;
  c.dtype = std::string_view(kernel.dtype) == "fp16" ? Dtype::fp16 : Dtype::bf16;
  c.batch = shape.batch;
  c.queries = shape.queries;
  c.keys = shape.keys;
  c.query_heads = shape.query_heads;
  c.key_heads = shape.key_heads;
  c.head_dim = kernel.head_dim - shape.fewer_columns;
  c.value_dim = kernel.value_dim - shape.fewer_columns;
  c.mask = shape.mask;
  c.packed = shape.packed;
  c.used = shape.used;
  c.layout = shape.layout;
  return c;
}

TEST_P(ForwardKernel, PassesTheChecks) {
  const KernelInfo kernel = kernels()[GetParam()];
  const Status status = available(Backend::emulator);
  ASSERT_TRUE(status.ok()) << status.message;
  const auto memory = memory_for(Backend::emulator);
  int served = 0;
  for (const Shape& shape : shapes) {
    Job job = make_job(case_of(kernel, shape));
    job.problem.options.backend = Backend::emulator;
    Bytes first;
    const uint64_t seeds = shape.queries * shape.keys > 120000 ? 2 : most_seeds;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE(std::string(shape.name) + ", seed " + std::to_string(seed));
      job.problem.options.emulator_seed = seed;
      auto planned = plan(Pass::forward, problem_of(job, memory->device()));
      ASSERT_TRUE(planned.ok()) << planned.status().argument << ": " << planned.status().message;
      // Another kernel may serve a shape better; the count below asks for enough that this one serves.
      if (planned->describe().find(std::string(kernel.name) + "\n") == std::string::npos) break;
      served += seed == 1;
      Execution execution(job, *planned, *memory);
      const Status run = execution.run();
      ASSERT_TRUE(run.ok()) << run.message;
      execution.fetch(job);
      if (seed == 1) {
        const auto verdict = judge(job, affordable_rows(job, 2e7), seed);
        EXPECT_TRUE(verdict.ok) << verdict.text;
        first = job.out.bytes;
      } else {
        EXPECT_TRUE(job.out.bytes == first) << "another seed gives another result";
      }
    }
    if (served == most_shapes) break;
  }
  EXPECT_GE(served, 10) << kernel.name << " serves too few of the shapes";
}

std::string test_name(const testing::TestParamInfo<size_t>& info) { return kernels()[info.param].name; }

INSTANTIATE_TEST_SUITE_P(Emulator, ForwardKernel, testing::Range(size_t{0}, kernels().size()), test_name);

}  // namespace
}  // namespace tandem::tools
