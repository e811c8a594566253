// Every compiled backward kernel on small shapes of every sort, with several seeds of the emulator: no report of its
// checks, gradients within the oracle's bounds, and in deterministic mode the same bytes for every seed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/sm90/backward/variants.hpp"
#include "tests/emulator/kernels.hpp"
#include "tools/judge.hpp"
#include "tools/sweep.hpp"

namespace tandem::tools {
namespace {

constexpr uint64_t seeds = 3;

SweepCase shape(int64_t batch, int64_t queries, int64_t keys, int64_t query_heads, int64_t key_heads, Mask mask = {}) {
  SweepCase c;
  c.pass = Pass::backward;
  c.batch = batch;
  c.queries = queries;
  c.keys = keys;
  c.query_heads = query_heads;
  c.key_heads = key_heads;
  c.mask = mask;
  return c;
}

Mask masked(bool causal, int64_t left = -1, int64_t right = -1) {
  Mask mask;
  mask.causal = causal;
  mask.left = left;
  mask.right = right;
  return mask;
}

std::vector<SweepCase> shapes() {
  std::vector<SweepCase> list = {
      shape(1, 256, 256, 2, 2),
      shape(1, 200, 330, 4, 2, masked(true)),
      shape(1, 300, 90, 2, 1, masked(true)),
      shape(1, 193, 290, 2, 1, masked(false, 60, 20)),
      shape(2, 129, 257, 2, 2, masked(true, 0)),
      shape(2, 1, 333, 4, 1),
      shape(1, 65, 1, 2, 2),
      shape(3, 150, 210, 2, 1, masked(true)),
      shape(2, 130, 190, 2, 2),
      shape(3, 100, 140, 2, 1, masked(true)),
  };
  list[7].packed = true;
  list[8].packed = list[8].used = true;
  list[9].used = true;
  list[9].layout = Layout::head_major;
  return list;
}

std::vector<KernelInfo> kernels() { return emulated_kernels(internal::sm90::backward_variants); }

class BackwardKernel : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    const Status status = available(Backend::emulator);
    ASSERT_TRUE(status.ok()) << status.message;
  }

  KernelInfo kernel() const { return kernels()[GetParam()]; }
  bool deterministic_alone() const { return internal::sm90::backward_variants[GetParam()].deterministic; }

  /// The case with this kernel's types and dims, its forward pass already run.
  Job job_of(SweepCase c) {
    c.dtype = std::string_view(kernel().dtype) == "fp16" ? Dtype::fp16 : Dtype::bf16;
    c.head_dim = kernel().head_dim;
    c.value_dim = kernel().value_dim;
    Job job = make_job(c);
    job.pass = Pass::forward;
    job.problem.options.backend = Backend::cpu;
    run(job);
    job.pass = Pass::backward;
    job.problem.options.backend = Backend::emulator;
    job.problem.options.deterministic = deterministic_alone();
    return job;
  }

  void run(Job& job) {
    const auto planned = plan(job.pass, problem_of(job, memory_->device()));
    ASSERT_TRUE(planned.ok()) << planned.status().argument << ": " << planned.status().message;
    if (job.pass == Pass::backward) {
      EXPECT_NE(planned->describe().find(kernel().name), std::string::npos) << planned->describe();
    }
    Execution execution(job, *planned, *memory_);
    const Status status = execution.run();
    ASSERT_TRUE(status.ok()) << status.message;
    execution.fetch(job);
  }

  /// Runs the job with every seed and hands each result on.
  template <class Check>
  void with_seeds(const Job& job, const Check& check) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Job seeded = job;
      seeded.problem.options.emulator_seed = seed;
      run(seeded);
      if (HasFatalFailure()) return;
      check(seeded);
    }
  }

  std::unique_ptr<Memory> memory_ = memory_for(Backend::emulator);
};

void expect_right(const Job& job) {
  const auto verdict = judge(job, -1);
  EXPECT_TRUE(verdict.ok) << verdict.text;
  for (const Tensor* tensor : {&job.grad_query, &job.grad_key, &job.grad_value}) EXPECT_TRUE(guards_intact(*tensor));
}

TEST_P(BackwardKernel, PassesTheChecks) {
  for (const SweepCase& c : shapes()) {
    SCOPED_TRACE(c.name());
    with_seeds(job_of(c), expect_right);
  }
}

TEST_P(BackwardKernel, RepeatsBitForBitWhenDeterministic) {
  for (const SweepCase& c : shapes()) {
    SCOPED_TRACE(c.name());
    Job job = job_of(c);
    job.problem.options.deterministic = true;
    Bytes first;
    with_seeds(job, [&](const Job& result) {
      if (first.empty()) {
        expect_right(result);
        first = result.grad_query.bytes;
      }
      EXPECT_EQ(result.grad_query.bytes, first) << "another seed gives another dQ";
    });
  }
}

/// Cases that broke other libraries, by id.
struct Case {
  const char* id;
  Dtype dtype;
  int64_t head_dim, value_dim;
  SweepCase shape;
};

std::vector<Case> cases() {
  std::vector<Case> list = {
      {"A8", Dtype::bf16, 128, 128, shape(1, 260, 130, 1, 1, masked(true))},
      {"B8", Dtype::fp16, 16, 16, shape(1, 1, 1, 1, 1)},
      {"D dims", Dtype::bf16, 40, 40, shape(1, 70, 90, 2, 1)},
      {"K4 12/3", Dtype::bf16, 64, 64, shape(1, 80, 80, 12, 3)},
      {"K4 6/6", Dtype::bf16, 64, 64, shape(1, 80, 80, 6, 6)},
      {"K4 8/1", Dtype::bf16, 64, 64, shape(1, 80, 80, 8, 1)},
      {"K5", Dtype::bf16, 256, 256, shape(1, 200, 200, 4, 1)},
      {"K7 192/128", Dtype::bf16, 192, 128, shape(1, 100, 130, 2, 1, masked(true))},
      {"K7 64/128", Dtype::bf16, 64, 128, shape(1, 100, 130, 2, 1)},
  };
  for (const int64_t length : {1, 63, 65, 113, 127, 129, 191, 193, 255, 257})
    for (const int64_t dim : {64, 96, 128})
      list.push_back({"K3", Dtype::bf16, dim, dim, shape(1, length, 320 - length, 1, 1, masked(dim == 96))});
  return list;
}

TEST(BackwardCases, AreRight) {
  const Status status = available(Backend::emulator);
  ASSERT_TRUE(status.ok()) << status.message;
  const auto memory = memory_for(Backend::emulator);
  for (const Case& example : cases()) {
    SweepCase c = example.shape;
    c.dtype = example.dtype;
    c.head_dim = example.head_dim;
    c.value_dim = example.value_dim;
    SCOPED_TRACE(std::string(example.id) + ": " + c.name());
    const Outcome outcome = run_case(c, Backend::emulator, *memory);
    EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << outcome.text;
  }
}

std::string test_name(const testing::TestParamInfo<size_t>& info) { return kernels()[info.param].name; }

INSTANTIATE_TEST_SUITE_P(Emulator, BackwardKernel, testing::Range(size_t{0}, kernels().size()), test_name);

}  // namespace
}  // namespace tandem::tools
