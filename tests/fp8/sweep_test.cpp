// The 8-bit forward over a seeded sweep, on tensors that the tools' own quantiser makes: layouts, granularities,
// masks, lengths, poisoned memory beyond them.
#include <gtest/gtest.h>

#include "tools/sweep.hpp"

namespace tandem::tools {
namespace {

TEST(Fp8Sweep, Cpu) {
  const Status status = available(Backend::cpu);
  if (!status.ok()) GTEST_SKIP() << status.message;
  SweepOptions options;
  options.fp8 = true;
  options.count = 80;
  options.seed = 3;
  const auto memory = host_memory();
  for (const SweepCase& c : sweep_cases(options)) {
    const Outcome outcome = run_case(c, Backend::cpu, *memory);
    EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << c.name() << "\n" << outcome.text;
  }
}

/// A sink takes weight from the keys, and so from a mean that is added back: once forgotten by a kernel.
TEST(Fp8Sweep, SinksAndMeansInTheEmulator) {
  const Status status = available(Backend::emulator);
  if (!status.ok()) GTEST_SKIP() << status.message;
  SweepOptions options;
  options.backend = Backend::emulator;
  options.fp8 = true;
  options.count = 400;
  const auto memory = host_memory();
  int met = 0;
  for (const SweepCase& c : sweep_cases(options)) {
    if (!c.sinks || c.softcap != 0 || !c.quantising->quantization.value_mean) continue;
    ++met;
    const Outcome outcome = run_case(c, Backend::emulator, *memory);
    EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << c.name() << "\n" << outcome.text;
  }
  EXPECT_GT(met, 3);
}

TEST(Fp8Sweep, MeetsEveryKind) {
  SweepOptions options;
  options.fp8 = true;
  options.count = 80;
  options.seed = 3;
  int int8 = 0, rows = 0, packed = 0, mean = 0, e4m3_out = 0, tensor = 0, head = 0, used = 0;
  for (const SweepCase& c : sweep_cases(options)) {
    ASSERT_TRUE(c.quantising.has_value());
    const Quantization& q = c.quantising->quantization;
    int8 += c.quantising->query_key == Dtype::int8;
    rows += q.value_layout == ValueLayout::rows;
    packed += q.value_layout == ValueLayout::packed && c.packed;
    mean += q.value_mean;
    e4m3_out += c.quantising->out == Dtype::e4m3;
    tensor += q.key == Granularity::tensor;
    head += q.value == Granularity::head;
    used += c.used;
  }
  for (const int count : {int8, rows, packed, mean, e4m3_out, tensor, head, used}) EXPECT_GT(count, 2);
}

}  // namespace
}  // namespace tandem::tools
