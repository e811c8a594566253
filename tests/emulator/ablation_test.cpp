// The ablation's kernels: every switch of the forward's configuration on small shapes, with the emulator's checks and
// the oracle's bounds.
#include "tools/bench/ablation.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tools/judge.hpp"
#include "tools/sweep.hpp"

namespace tandem::tools {
namespace {

struct Shape {
  const char* name;
  int64_t batch, queries, keys, query_heads, key_heads;
  bool causal;
  int64_t left = -1;
  bool packed = false, used = false;
  float scale = 0;  // 0: the default
};

const Shape shapes[] = {
    {"one_block", 1, 70, 60, 3, 1, false},
    {"two_blocks", 1, 128, 190, 3, 3, false},
    {"many_blocks", 1, 100, 1030, 1, 1, false},
    // Consumers that pass over blocks; more tiles than blocks of the grid.
    {"causal", 1, 500, 500, 2, 1, true},
    {"causal_more_queries", 1, 300, 100, 2, 1, true},
    {"window", 1, 300, 400, 2, 1, true, 70},
    {"packed", 3, 150, 333, 2, 1, true, -1, true, true},
    // Sums that outgrow the first block's maximum.
    {"steep", 1, 130, 700, 2, 2, false, -1, false, false, 3},
};

class Ablation : public testing::TestWithParam<size_t> {
 protected:
  static void SetUpTestSuite() { setenv("TANDEM_EMULATOR_LIBRARY", TANDEM_ABLATION_LIBRARY, 1); }
};

Job job_of(const Shape& shape) {
  SweepCase c;
  c.batch = shape.batch;
  c.queries = shape.queries;
  c.keys = shape.keys;
  c.query_heads = shape.query_heads;
  c.key_heads = shape.key_heads;
  c.head_dim = c.value_dim = 128;
  c.mask.causal = shape.causal;
  c.mask.left = shape.left;
  c.packed = shape.packed;
  c.used = shape.used;
  if (shape.scale != 0) c.scale = shape.scale;
  Job job = make_job(c);
  job.problem.options.backend = Backend::emulator;
  return job;
}

TEST_P(Ablation, PassesTheChecks) {
  const AblationKernel& kernel = ablation_kernels()[GetParam()];
  const auto memory = memory_for(Backend::emulator);
  for (const Shape& shape : shapes) {
    Job job = job_of(shape);
    Bytes first;
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE(std::string(shape.name) + ", seed " + std::to_string(seed));
      job.problem.options.emulator_seed = seed;
      auto planned = ablation_plan(kernel, problem_of(job, memory->device()));
      ASSERT_TRUE(planned.ok()) << planned.status().argument << ": " << planned.status().message;
      EXPECT_NE(planned->describe().find(std::string(kernel.name) + "\n"), std::string::npos) << planned->describe();
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
  }
}

std::string test_name(const testing::TestParamInfo<size_t>& info) { return ablation_kernels()[info.param].name; }

INSTANTIATE_TEST_SUITE_P(Emulator, Ablation, testing::Range(size_t{0}, ablation_kernels().size()), test_name);

}  // namespace
}  // namespace tandem::tools
