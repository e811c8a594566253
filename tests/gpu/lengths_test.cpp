// Lengths in GPU memory: checked on request, and harmless when they are wrong and nobody checks.
#include <climits>

#include "gpu/support.hpp"

namespace tandem::testing {
namespace {

/// Three sequences in 90 rows of query and 120 of key.
Job packed_job() {
  return make_job({.query_heads = 2,
                   .key_heads = 1,
                   .head_dim = 64,
                   .mask = causal_mask(),
                   .cu_query = {0, 40, 50, 90},
                   .cu_key = {0, 60, 61, 120},
                   .used_query = {40, 10, 7},
                   .used_key = {60, 0, 59}});
}

struct Bad {
  const char* what;
  Tensor Job::*tensor;
  const char* argument;
  std::vector<int32_t> values;
};

const Bad bad_lengths[] = {
    {"first isn't 0", &Job::cu_query, "cu_query", {1, 40, 50, 90}},
    {"decreasing", &Job::cu_query, "cu_query", {0, 50, 40, 90}},
    {"last below the total", &Job::cu_query, "cu_query", {0, 40, 50, 80}},
    {"last beyond the total", &Job::cu_query, "cu_query", {0, 40, 51, 91}},
    {"longer than the maximum", &Job::cu_query, "cu_query", {0, 5, 10, 90}},
    {"negative", &Job::cu_key, "cu_key", {0, -60, 61, 120}},
    {"huge", &Job::cu_key, "cu_key", {0, 60, INT_MAX, 120}},
    {"all wild", &Job::cu_query, "cu_query", {INT_MIN, INT_MAX, -7, 1 << 30}},
    {"wild keys", &Job::cu_key, "cu_key", {INT_MAX, 0, INT_MIN, INT_MAX}},
    {"used beyond the sequence", &Job::used_key, "used_key", {61, 0, 59}},
    {"used negative", &Job::used_query, "used_query", {40, -1, 7}},
    {"used huge", &Job::used_query, "used_query", {INT_MAX, INT_MAX, INT_MIN}},
};

class GpuLengths : public Gpu {
 protected:
  /// Plans with good lengths, then runs with these.
  Status run_with(Job& job, const Bad& bad, const Options& options) {
    auto planned = plan_of(job, options);
    if (!planned.ok()) return planned.status();
    job.*bad.tensor = int32_tensor(bad.values);
    tools::Execution execution(job, *planned, *memory_);
    const Status status = execution.run();
    if (status.ok()) execution.fetch(job);  // throws if the kernel faulted
    return status;
  }
};

TEST_F(GpuLengths, CheckedOnRequest) {
  Options options;
  options.check_lengths = true;
  Job good = packed_job();
  run(good, options);
  expect_right(good);
  for (const Bad& bad : bad_lengths) {
    Job job = packed_job();
    const Status status = run_with(job, bad, options);
    EXPECT_EQ(status.code, Code::invalid_argument) << bad.what;
    EXPECT_STREQ(status.argument, bad.argument) << bad.what << ": " << status.message;
  }
}

class GpuUncheckedLengths : public GpuLengths {
 protected:
  void SetUp() override {
    if (backend() != Backend::sm90) GTEST_SKIP() << "lengths in CPU memory are always checked";
    Gpu::SetUp();
  }
};

TEST_F(GpuUncheckedLengths, M1_NeverReadOrWriteElsewhere) {
  for (const Bad& bad : bad_lengths) {
    Job job = packed_job();
    const Status status = run_with(job, bad, {});
    ASSERT_TRUE(status.ok()) << bad.what << ": " << status.message;
    EXPECT_TRUE(tools::guards_intact(job.out)) << bad.what;
    EXPECT_TRUE(tools::guards_intact(job.lse)) << bad.what;
  }
  Job job = packed_job();  // and the GPU still works
  run(job);
  expect_right(job);
}

TEST_F(GpuUncheckedLengths, M1_BadUsedLengthsOfDenseTensors) {
  for (const int32_t bad : {-1, INT_MIN, 1000, INT_MAX}) {
    Job job = make_job(
        {.batch = 2, .queries = 130, .keys = 200, .head_dim = 64, .used_query = {130, 130}, .used_key = {200, 200}});
    auto planned = plan_of(job);
    ASSERT_TRUE(planned.ok()) << planned.status().message;
    job.used_query = int32_tensor({bad, 5});
    job.used_key = int32_tensor({7, bad});
    tools::Execution execution(job, *planned, *memory_);
    ASSERT_TRUE(execution.run().ok());
    execution.fetch(job);
    EXPECT_TRUE(tools::guards_intact(job.out)) << bad;
    expect_right(job);  // lengths are clamped, by the kernel as by the oracle's caller
  }
}

}  // namespace
}  // namespace tandem::testing
