// Values of lengths in CPU memory (known faults M1 and C7): all are checked before anything is read through them.
#include <algorithm>
#include <cstring>

#include "support.hpp"

namespace tandem::testing {
namespace {

constexpr Code invalid = Code::invalid_argument;

/// Four sequences in 20 rows of query and key, none longer than 10.
Problem problem_of_four(bool used = false) {
  Problem problem;
  problem.query = problem.key = problem.value = bf16_tensor({20, 2, 64});
  problem.lengths = {4, 10, 10, true, true, used, used};
  return problem;
}

Status run_with(std::vector<int32_t> cu_query, std::vector<int32_t> cu_key) {
  Bench bench(problem_of_four());
  std::copy(cu_query.begin(), cu_query.end(), bench.cu_query.begin());
  std::copy(cu_key.begin(), cu_key.end(), bench.cu_key.begin());
  return bench.run();
}

const std::vector<int32_t> right{0, 10, 10, 13, 20};

TEST(Lengths, RightOnesRun) { EXPECT_TRUE(run_with(right, right).ok()) << run_with(right, right).message; }

TEST(Lengths, M1_FirstIsNotZero) {
  expect_fault(run_with({1, 10, 10, 13, 20}, right), invalid, "cu_query", "begin at 0");
  expect_fault(run_with(right, {-3, 7, 10, 13, 20}), invalid, "cu_key", "begin at 0");
}

TEST(Lengths, M1_Decreasing) {
  expect_fault(run_with({0, 9, 5, 15, 20}, right), invalid, "cu_query", "don't decrease");
  expect_fault(run_with(right, {0, 9, 5, 15, 20}), invalid, "cu_key", "cu_key[2] is 5 after 9");
  expect_fault(run_with({0, 9, INT32_MIN, 15, 20}, right), invalid, "cu_query", "don't decrease");
}

TEST(Lengths, M1_LastPastTheRows) {
  expect_fault(run_with({0, 10, 10, 14, 21}, right), invalid, "cu_query", "must be 20");
  expect_fault(run_with(right, {0, 10, 10, 14, 21}), invalid, "cu_key", "at most 20");
}

TEST(Lengths, M1_LongerThanTheMaximum) {
  expect_fault(run_with({0, 11, 11, 13, 20}, right), invalid, "cu_query", "length 11");
  expect_fault(run_with(right, {0, 0, 0, 0, 20}), invalid, "cu_key", "maximum is 10");
}

TEST(Lengths, C7_QueryRowsBeyondTheLast) {
  expect_fault(run_with({0, 10, 10, 13, 19}, right), invalid, "cu_query", "must be 20");
  EXPECT_TRUE(run_with(right, {0, 10, 10, 13, 19}).ok()) << "rows of key beyond the last are never read";
}

TEST(Lengths, C7_BackwardWritesKeyRowsToo) {
  Problem problem = problem_of_four();
  problem.out = problem.grad_out = problem.grad_query = problem.grad_key = problem.grad_value = problem.query;
  problem.lse = contiguous(Dtype::fp32, cpu(), {2, 20});
  Bench bench(problem, Pass::backward);
  ASSERT_TRUE(bench.run().ok()) << bench.run().message;
  bench.cu_key = right;
  bench.arguments.cu_key.data = bench.cu_key.data();
  bench.cu_key[4] = 19;
  expect_fault(bench.run(), invalid, "cu_key", "must be 20");
}

TEST(Lengths, UsedStayWithinTheirSequences) {
  Bench bench(problem_of_four(true));
  ASSERT_TRUE(bench.run().ok()) << bench.run().message;
  bench.used_query[1] = 6;  // sequences have 5 rows
  expect_fault(bench.run(), invalid, "used_query", "has 5 rows");
  bench.used_query[1] = 0;
  bench.used_key[3] = -1;
  expect_fault(bench.run(), invalid, "used_key", "used_key[3] is -1");
}

TEST(Lengths, UsedOfDenseTensors) {
  Problem problem = dense_problem();
  problem.lengths.used_key = true;
  Bench bench(problem);
  bench.used_key[0] = 48;
  EXPECT_TRUE(bench.run().ok()) << bench.run().message;
  bench.used_key[0] = 49;
  expect_fault(bench.run(), invalid, "used_key", "has 48 rows");
}

TEST(Lengths, A2_NoSequences) {
  Problem problem;
  problem.query = problem.key = problem.value = bf16_tensor({0, 2, 64});
  problem.lengths = {0, 0, 0, true, true, false, false};
  Bench bench(problem);
  EXPECT_TRUE(bench.run().ok()) << bench.run().message;
}

/// Plays a GPU whose memory the host can't read except by copy_to_host.
class DeviceExecutable : public FakeExecutable {
 public:
  explicit DeviceExecutable(const internal::Attention& attention) : FakeExecutable(attention, 0) {}
  Status copy_to_host(void* destination, const void* source, size_t bytes, void* stream) const noexcept override {
    EXPECT_EQ(stream, this);
    ++copies;
    std::memcpy(destination, static_cast<const char*>(source) - 4096, bytes);
    return {};
  }
  mutable int copies = 0;
};

TEST(Lengths, OnAGpuTheyAreCheckedOnDemand) {
  for (const bool asked : {false, true}) {
    Problem problem = problem_of_four(true);
    for (TensorSpec* spec : {&problem.query, &problem.key, &problem.value}) spec->device = cuda(0);
    problem.options.check_lengths = asked;
    const auto attention = internal::resolve(Pass::forward, problem);
    ASSERT_TRUE(attention.ok()) << attention.status().message;
    const auto executable = std::make_shared<DeviceExecutable>(*attention);
    alignas(16) static char memory[16];
    std::vector<int32_t> cu = right, used{10, 0, 3, 7};
    const auto away = [](std::vector<int32_t>& values) {
      return TensorView{contiguous(Dtype::int32, cuda(0), {static_cast<int64_t>(values.size())}),
                        reinterpret_cast<char*>(values.data()) + 4096};
    };
    Arguments arguments;
    arguments.query = {problem.query, memory};
    arguments.key = arguments.value = {problem.key, memory};
    arguments.out.data = memory;
    arguments.cu_query = arguments.cu_key = away(cu);
    arguments.used_query = arguments.used_key = away(used);
    const auto run = [&] { return Plan(executable).run(arguments, nullptr, 0, executable.get()); };
    EXPECT_TRUE(run().ok()) << run().message;
    EXPECT_EQ(executable->copies > 0, asked);
    used[2] = 4;
    if (asked) {
      expect_fault(run(), invalid, "used_query", "used_query[2] is 4");
    } else {
      EXPECT_TRUE(run().ok()) << "the kernel clamps it";
    }
  }
}

}  // namespace
}  // namespace tandem::testing
