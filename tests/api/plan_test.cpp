// The object that plan() gives, and the border that no exception crosses.
#include <stdexcept>

#include "common/status.hpp"
#include "support.hpp"

namespace tandem::testing {
namespace {

class Throwing : public FakeExecutable {
 public:
  explicit Throwing(const internal::Attention& attention) : FakeExecutable(attention, 0) {}
  std::string describe() const override { throw std::bad_alloc(); }
};

TEST(Plan, OfAProblemThatIsWrong) {
  Problem problem = dense_problem();
  problem.key.dtype = Dtype::fp16;
  const auto result = plan(Pass::forward, problem);
  ASSERT_FALSE(result.ok());
  expect_fault(result.status(), Code::invalid_argument, "key", "fp16");
}

TEST(Plan, OnCudaWithoutAGpuIsAnErrorAndNoCpuRun) {
  const Status status = available(Backend::sm90);
  if (status.ok()) GTEST_SKIP() << "this machine has a Hopper GPU";
  Problem problem = dense_problem();
  for (TensorSpec* spec : {&problem.query, &problem.key, &problem.value, &problem.lse}) spec->device = cuda(0);
  const auto result = plan(Pass::forward, problem);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code, status.code) << result.status().message << " / " << status.message;
  EXPECT_NE(result.status().message[0], '\0');
}

TEST(Plan, EmptyIsHarmless) {
  const Bench bench(dense_problem());
  EXPECT_EQ(Plan(bench.executable).backend(), Backend::cpu);
  EXPECT_EQ(Plan(bench.executable).describe(), "fake\n");
  const Plan empty(nullptr);  // as one that has been moved from
  EXPECT_EQ(empty.workspace_bytes(), 0u);
  EXPECT_EQ(empty.describe(), "");
  EXPECT_EQ(empty.backend(), Backend::automatic);
  expect_fault(empty.run(bench.arguments), Code::invalid_argument, "plan", "moved from");
}

TEST(Plan, DescribeSurvivesAFullMemory) {
  Bench bench(dense_problem());
  const auto throwing = std::make_shared<Throwing>(bench.executable->attention());
  EXPECT_EQ(Plan(throwing).describe(), "");
}

TEST(Guarded, TurnsExceptionsIntoStatus) {
  expect_fault(internal::guarded([]() -> Status { throw std::bad_alloc(); }), Code::out_of_memory, "", "memory");
  expect_fault(internal::guarded([]() -> Status { throw std::runtime_error("why"); }), Code::internal, "", "why");
  expect_fault(internal::guarded([]() -> Status { throw 3; }), Code::internal, "", "unknown type");
  EXPECT_TRUE(internal::guarded([]() -> Status { return {}; }).ok());
  const auto result = internal::guarded([]() -> Result<int> { throw std::bad_alloc(); });
  EXPECT_EQ(result.status().code, Code::out_of_memory);
}

TEST(Guarded, LongTextsAreCut) {
  const std::string long_text(2000, 'x');
  const Status status = internal::error(Code::internal, long_text.c_str(), "%s", long_text.c_str());
  EXPECT_EQ(std::string(status.argument).size(), sizeof status.argument - 1);
  EXPECT_EQ(std::string(status.message).size(), sizeof status.message - 1);
}

}  // namespace
}  // namespace tandem::testing
