// The CPU's forward pass against the float64 oracle, over a seeded sweep.
#include <array>

#include "cpu/sweep.hpp"
#include "hwy/targets.h"

namespace {

using tandem::Dtype;
using testing_support::Case;
using testing_support::Config;

class ForwardSweep : public testing::TestWithParam<int> {};

TEST_P(ForwardSweep, MatchesTheOracle) {
  for (int n = 0; n < 12; ++n)
    Case(testing_support::draw_config(tandem::Pass::forward, static_cast<uint64_t>(GetParam() * 100 + n))).check();
}

INSTANTIATE_TEST_SUITE_P(Seeded, ForwardSweep, testing::Range(0, 16));

TEST(Forward, EveryHeadDim) {
  for (int64_t dim = 8; dim <= 512; dim += 8) {
    Config c;
    c.dtype = std::array{Dtype::fp32, Dtype::fp16, Dtype::bf16}[static_cast<size_t>(dim / 8 % 3)];
    c.queries = 19;
    c.keys = 37;
    c.head_dim = c.value_dim = dim;
    c.mask.causal = dim % 16 == 0;
    c.seed = static_cast<uint64_t>(dim);
    Case(c).check();
  }
}

/// Every instruction set that this machine has, not only the best.
TEST(Forward, EveryInstructionSet) {
  int64_t remaining = hwy::SupportedTargets();
  int tried = 0;
  for (; remaining != 0; remaining &= remaining - 1) {
    const int64_t target = remaining & -remaining;
    hwy::SetSupportedTargetsForTest(target);
    Config c = testing_support::shape(Dtype::fp16, 1, 70, 140, 2, 1, 72, true);
    c.seed = static_cast<uint64_t>(tried);
    Case forward(c);
    forward.check();
    forward.check_backward();
    c.dtype = Dtype::bf16;
    c.softcap = 10;
    Case(c).check_backward();
    c.dtype = Dtype::fp32;
    Case capped(c);
    capped.check_backward();
    const auto plan = tandem::plan(tandem::Pass::forward, capped.problem());
    if (plan->describe().find(hwy::TargetName(target)) != std::string::npos) ++tried;
  }
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_GE(tried, 1);  // targets that the build leaves out run the next one's kernels
}

TEST(Forward, ThreadsDoNotChangeABit) {
  Config c;
  c.queries = c.keys = 301;
  c.query_heads = 4;
  c.key_heads = 2;
  c.mask.causal = true;
  Case one(c);
  c.threads = 1;
  ASSERT_TRUE(one.run().ok());
  for (int threads : {2, 3, 7}) {
    c.threads = threads;
    Case many(c);
    ASSERT_TRUE(many.run().ok());
    EXPECT_EQ(one.out.content(), many.out.content()) << threads << " threads";
    EXPECT_EQ(one.lse.content(), many.lse.content());
  }
}

TEST(Forward, RunsOnTheCallersThreads) {
  Config c;
  c.queries = c.keys = 200;
  c.query_heads = c.key_heads = 3;
  Case given(c), own(c);
  ASSERT_TRUE(own.run().ok());
  int64_t tasks = 0;
  auto executor = std::make_shared<tandem::Executor>();
  executor->concurrency = 3;
  executor->parallel = [&](int64_t count, const std::function<void(int64_t)>& task) {
    tasks += count;
    for (int64_t n = count; n-- > 0;) task(n);
  };
  tandem::Problem problem = given.problem();
  problem.options.executor = executor;
  ASSERT_TRUE(testing_support::run(tandem::Pass::forward, problem, given.arguments()).ok());
  EXPECT_EQ(tasks, 3);
  EXPECT_EQ(own.out.content(), given.out.content());
}

TEST(Forward, BroadcastHeadsAndBatch) {
  Config c;
  c.batch = 2;
  c.query_heads = c.key_heads = 3;
  Case strided(c);
  strided.key = testing_support::Tensor(c.dtype, {2, 64, 3, 64}, std::vector<int64_t>{0, 64, 0, 1});
  strided.key.fill_normal(0, 0, 64, 5);
  strided.value = testing_support::Tensor(c.dtype, {2, 64, 3, 64}, std::vector<int64_t>{0, 0, 64, 1});
  strided.value.fill_normal(0, 0, 64, 6);
  strided.check();
}

}  // namespace
