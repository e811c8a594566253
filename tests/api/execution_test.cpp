// Plan and run end to end on the CPU backend: the contracts at the edges that api/ and plan/ share with it. (What the
// backend computes is compared with the oracle in its own tests.)
#include <cmath>
#include <thread>

#include "common/dtypes.hpp"
#include "support.hpp"

namespace tandem::testing {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

struct Tensor {
  TensorSpec spec;
  std::vector<float> data;

  Tensor(std::initializer_list<int64_t> size, float fill)
      : spec(contiguous(Dtype::fp32, cpu(), size)), data(static_cast<size_t>(internal::elements(spec)) + 8, fill) {
    spec.alignment = 4;
  }
  TensorView view() { return {spec, data.data()}; }
};

class Execution : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = available(Backend::cpu);
    if (!status.ok()) GTEST_SKIP() << status.message;
  }

  Status run(Tensor& query, Tensor& key, Tensor& value, Tensor& out, Tensor& lse, Arguments arguments = {}) {
    problem.query = query.spec;
    problem.key = key.spec;
    problem.value = value.spec;
    problem.out = out.spec;
    problem.lse = lse.spec;
    problem.options.threads = 1;
    const auto made = plan(Pass::forward, problem);
    if (!made.ok()) return made.status();
    arguments.query = query.view();
    arguments.key = key.view();
    arguments.value = value.view();
    arguments.out = out.view();
    arguments.lse = lse.view();
    std::vector<char> memory(made->workspace_bytes() + 256);
    void* workspace = memory.data();
    size_t space = memory.size();
    std::align(256, made->workspace_bytes(), workspace, space);
    return made->run(arguments, workspace, made->workspace_bytes());
  }

  Problem problem;
};

TEST_F(Execution, A1_NoKeys) {
  for (const bool causal : {false, true}) {
    problem.mask.causal = causal;
    Tensor query({2, 5, 4, 16}, 1), key({2, 0, 2, 16}, nan), value({2, 0, 2, 24}, nan);
    Tensor out({2, 5, 4, 24}, nan), lse({2, 4, 5}, nan);
    const Status status = run(query, key, value, out, lse);
    ASSERT_TRUE(status.ok()) << status.message;
    for (int64_t i = 0; i < 2 * 5 * 4 * 24; ++i) ASSERT_EQ(out.data[i], 0) << i;
    for (int64_t i = 0; i < 2 * 4 * 5; ++i) ASSERT_EQ(lse.data[i], -infinity) << i;
    EXPECT_TRUE(std::isnan(out.data[2 * 5 * 4 * 24])) << "written past the end";
  }
}

TEST_F(Execution, A2_M9_NothingToDo) {
  Tensor query({2, 0, 4, 16}, 1), key({2, 7, 2, 16}, 1), out({2, 0, 4, 16}, nan), lse({2, 4, 0}, nan);
  Status status = run(query, key, key, out, lse);
  EXPECT_TRUE(status.ok()) << status.message;
  Tensor none({0, 3, 4, 16}, 1), none_key({0, 7, 2, 16}, 1), none_lse({0, 4, 3}, nan);
  status = run(none, none_key, none_key, none, none_lse);
  EXPECT_TRUE(status.ok()) << status.message;
}

TEST_F(Execution, A3_OneSequenceWithoutKeys) {
  Tensor query({12, 2, 16}, 0), key({75, 2, 16}, 1), value({75, 2, 16}, 3), out({12, 2, 16}, nan), lse({2, 12}, nan);
  std::vector<int32_t> cu_query{0, 4, 8, 12}, cu_key{0, 70, 70, 75};
  problem.lengths = {3, 4, 70, true, true, false, false};
  Arguments arguments;
  arguments.cu_query = {contiguous(Dtype::int32, cpu(), {4}), cu_query.data()};
  arguments.cu_key = {contiguous(Dtype::int32, cpu(), {4}), cu_key.data()};
  const Status status = run(query, key, value, out, lse, arguments);
  ASSERT_TRUE(status.ok()) << status.message;
  for (int row = 0; row < 12; ++row) {
    const bool empty = row >= 4 && row < 8;
    for (int i = 0; i < 32; ++i) EXPECT_NEAR(out.data[row * 32 + i], empty ? 0 : 3, 1e-5) << row;
    const float expected = row < 4 ? std::log(70.0f) : (empty ? -infinity : std::log(5.0f));
    for (int head = 0; head < 2; ++head) {
      const float got = lse.data[head * 12 + row];
      EXPECT_TRUE(empty ? got == expected : std::abs(got - expected) < 1e-5f) << got << ", not " << expected;
    }
  }
}

TEST_F(Execution, M8_OutWithStridesOfItsOwn) {
  Tensor query({1, 1, 4, 16}, 0), key({1, 3, 2, 16}, 1), value({1, 3, 2, 16}, 2), lse({1, 4, 1}, nan);
  Tensor out({1, 1, 4, 20}, nan);
  out.spec.size[3] = 16;  // rows of 16 in a buffer with rows of 20
  const Status status = run(query, key, value, out, lse);
  ASSERT_TRUE(status.ok()) << status.message;
  for (int head = 0; head < 4; ++head) {
    for (int d = 0; d < 20; ++d) {
      const float x = out.data[head * 20 + d];
      EXPECT_TRUE(d < 16 ? std::abs(x - 2) < 1e-6f : std::isnan(x)) << "head " << head << " dim " << d << ": " << x;
    }
  }
}

TEST_F(Execution, N5_OnePlanOnManyThreads) {
  Problem shared;
  shared.query = shared.key = shared.value = contiguous(Dtype::fp32, cpu(), {1, 40, 2, 16});
  shared.options.threads = 1;
  const auto made = plan(Pass::forward, shared);
  ASSERT_TRUE(made.ok()) << made.status().message;
  std::vector<float> input(40 * 2 * 16);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  const size_t bytes = made->workspace_bytes();
  const auto run = [&](std::vector<float>& out) {
    std::vector<char> memory(bytes + 256);
    void* workspace = memory.data();
    size_t space = memory.size();
    std::align(256, bytes, workspace, space);
    Arguments arguments;
    arguments.query = arguments.key = arguments.value = {shared.query, input.data()};
    arguments.out.data = out.data();
    return made->run(arguments, workspace, bytes);
  };
  std::vector<float> expected(input.size());
  ASSERT_TRUE(run(expected).ok());
  std::vector<std::vector<float>> outs(8, std::vector<float>(input.size(), nan));
  {
    std::vector<std::jthread> threads;
    for (auto& out : outs) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) EXPECT_TRUE(run(out).ok());
      });
    }
  }
  for (const auto& out : outs) EXPECT_EQ(out, expected);
}

TEST_F(Execution, DescribesItself) {
  problem.query = problem.key = problem.value = contiguous(Dtype::fp32, cpu(), {1, 8, 2, 16});
  const auto made = plan(Pass::forward, problem);
  ASSERT_TRUE(made.ok()) << made.status().message;
  EXPECT_EQ(made->backend(), Backend::cpu);
  EXPECT_NE(made->describe().find("cpu"), std::string::npos) << made->describe();
}

}  // namespace
}  // namespace tandem::testing
