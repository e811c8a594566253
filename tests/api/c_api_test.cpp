// The C ABI's own work: struct sizes, defaults, spelling of names, null pointers, threads of the caller.
#include "tandem/tandem.h"

#include <cstring>

#include "support.hpp"

namespace tandem::testing {
namespace {

struct CProblem {
  int64_t query_shape[4] = {1, 4, 2, 16}, key_shape[4] = {1, 6, 2, 16};
  float memory[4 * 2 * 16] = {}, key_memory[6 * 2 * 16] = {}, out_memory[4 * 2 * 16] = {};
  DLTensor query{memory, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, query_shape, nullptr, 0};
  DLTensor key{key_memory, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, key_shape, nullptr, 0};
  DLTensor out{out_memory, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, query_shape, nullptr, 0};
  tandem_problem problem;
  tandem_error error{};

  CProblem(const CProblem&) = delete;  // its pointers are to itself
  CProblem& operator=(const CProblem&) = delete;
  CProblem() {
    tandem_problem_init(&problem, sizeof problem);
    problem.query = &query;
    problem.key = problem.value = &key;
    problem.alignment = 4;
  }
};

void expect_refused(void (*spoil)(CProblem&), int32_t pass, int32_t code, const char* argument, const char* word) {
  CProblem c;
  spoil(c);
  tandem_plan* plan = reinterpret_cast<tandem_plan*>(&c);
  EXPECT_EQ(tandem_plan_create(pass, &c.problem, &plan, &c.error), code) << c.error.message;
  EXPECT_EQ(plan, nullptr);
  EXPECT_EQ(c.error.code, code);
  EXPECT_STREQ(c.error.argument, argument);
  EXPECT_NE(std::strstr(c.error.message, word), nullptr) << c.error.message;
}

TEST(CApi, AlignmentIsAPromiseOfTheTensorsNotOfTheLse) {
  CProblem c;
  int64_t shape[3] = {1, 2, 4};
  DLTensor lse{c.memory, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
  for (DLTensor* tensor : {&c.query, &c.key, &c.out}) tensor->dtype.bits = 16;
  c.problem.lse = &lse;
  c.problem.alignment = 2;
  tandem_plan* plan = nullptr;
  EXPECT_EQ(tandem_plan_create(TANDEM_FORWARD, &c.problem, &plan, &c.error), TANDEM_OK) << c.error.message;
  tandem_plan_destroy(plan);
}

TEST(CApi, DefaultsAreThoseOfCxx) {
  tandem_problem problem;
  std::memset(&problem, 0xff, sizeof problem);
  tandem_problem_init(&problem, sizeof problem);
  const Problem cxx;
  EXPECT_EQ(problem.struct_size, sizeof problem);
  EXPECT_EQ(problem.query, nullptr);
  EXPECT_EQ(problem.grad_value, nullptr);
  EXPECT_EQ(problem.has_scale, 0);
  EXPECT_EQ(problem.softcap, cxx.softcap);
  EXPECT_EQ(problem.mask_left, cxx.mask.left);
  EXPECT_EQ(problem.mask_right, cxx.mask.right);
  EXPECT_EQ(problem.lengths_batch, cxx.lengths.batch);
  EXPECT_EQ(problem.lengths_max_key, cxx.lengths.max_key);
  EXPECT_EQ(problem.options_backend, static_cast<int>(cxx.options.backend));
  EXPECT_EQ(problem.options_num_splits, cxx.options.num_splits);
  EXPECT_EQ(problem.options_threads, cxx.options.threads);
  EXPECT_EQ(problem.options_emulator_seed, cxx.options.emulator_seed);
  EXPECT_EQ(problem.alignment, TensorSpec().alignment);
}

TEST(CApi, FieldsAreSpelledAsInC) {
  expect_refused([](CProblem& c) { c.problem.mask_left = -9; }, TANDEM_FORWARD, TANDEM_INVALID_ARGUMENT, "mask_left",
                 "mask_left is -9");
  expect_refused([](CProblem& c) { c.problem.options_num_splits = 3; }, TANDEM_FORWARD, TANDEM_UNSUPPORTED,
                 "options_num_splits", "options_num_splits is 3");
  expect_refused(
      [](CProblem& c) {
        c.problem.mask_causal = 1;
        c.problem.mask_right = 4;
      },
      TANDEM_FORWARD, TANDEM_INVALID_ARGUMENT, "mask_right", "but mask_causal means 0");
}

TEST(CApi, ErrorsOfProblemsComeThrough) {
  const int32_t forward = TANDEM_FORWARD, invalid = TANDEM_INVALID_ARGUMENT;
  expect_refused([](CProblem& c) { c.query.dtype.lanes = 2; }, forward, invalid, "query", "lanes");
  expect_refused([](CProblem& c) { c.problem.value = nullptr; }, forward, invalid, "value", "missing");
  expect_refused([](CProblem& c) { c.problem.grad_query = &c.query; }, forward, invalid, "grad_query", "forward");
  expect_refused([](CProblem&) {}, TANDEM_MERGE, TANDEM_UNSUPPORTED, "pass", "merge");
  expect_refused([](CProblem&) {}, 77, invalid, "pass", "77");
  expect_refused([](CProblem& c) { c.problem.options_backend = -5; }, forward, invalid, "options_backend", "-5");
  expect_refused([](CProblem& c) { c.problem.alignment = 3; }, forward, invalid, "query", "alignment");
  expect_refused(
      [](CProblem& c) {
        c.problem.has_scale = 1;
        c.problem.scale = std::numeric_limits<float>::infinity();
      },
      forward, invalid, "scale", "finite");
}

TEST(CApi, StructSizes) {
  expect_refused([](CProblem& c) { c.problem.struct_size = 0; }, TANDEM_FORWARD, TANDEM_INVALID_ARGUMENT, "problem",
                 "tandem_problem_init");
  expect_refused([](CProblem& c) { c.problem.struct_size = SIZE_MAX; }, TANDEM_FORWARD, TANDEM_INVALID_ARGUMENT,
                 "problem", "struct_size");

  // A program of an earlier version knows fewer fields: those beyond keep their defaults.
  CProblem c;
  c.problem.struct_size = offsetof(tandem_problem, options_num_splits);
  c.problem.options_num_splits = 99;
  tandem_plan* plan = nullptr;
  const int32_t code = tandem_plan_create(TANDEM_FORWARD, &c.problem, &plan, &c.error);
  EXPECT_STRNE(c.error.argument, "options_num_splits") << c.error.message;
  EXPECT_EQ(code == TANDEM_OK, plan != nullptr);
  tandem_plan_destroy(plan);

  // One of a later version knows more: fine while they are zero.
  struct Later {
    tandem_problem problem;
    int64_t sauce;
  } later;
  tandem_problem_init(&later.problem, sizeof later);
  EXPECT_EQ(later.problem.struct_size, sizeof later);
  EXPECT_EQ(later.sauce, 0);
  tandem_error error;
  EXPECT_NE(tandem_plan_create(TANDEM_FORWARD, &later.problem, &plan, &error), TANDEM_OK);
  EXPECT_STREQ(error.argument, "query");  // past the struct's size, it misses a query
  later.sauce = 1;
  EXPECT_EQ(tandem_plan_create(TANDEM_FORWARD, &later.problem, &plan, &error), TANDEM_UNSUPPORTED);
  EXPECT_STREQ(error.argument, "problem");
}

TEST(CApi, InitWritesNoFurtherThanItIsTold) {
  tandem_problem problem;
  std::memset(&problem, 0x5a, sizeof problem);
  tandem_problem_init(&problem, offsetof(tandem_problem, softcap));
  EXPECT_EQ(problem.struct_size, offsetof(tandem_problem, softcap));
  unsigned char byte;
  std::memcpy(&byte, &problem.softcap, 1);
  EXPECT_EQ(byte, 0x5a);
  tandem_problem_init(nullptr, sizeof problem);
  tandem_arguments_init(nullptr, sizeof(tandem_arguments));
}

// Programs that were compiled earlier rely on where fields lie: only append.
TEST(CApi, FieldsKeepTheirPlaces) {
  if (sizeof(void*) != 8) GTEST_SKIP() << "the places below are those of 64-bit machines";
  EXPECT_EQ(offsetof(tandem_problem, query), 8u);
  EXPECT_EQ(offsetof(tandem_problem, alignment), 48u);
  EXPECT_EQ(offsetof(tandem_problem, mask_left), 72u);
  EXPECT_EQ(offsetof(tandem_problem, mask_diagonal), 96u);
  EXPECT_EQ(offsetof(tandem_problem, lengths_packed_query), 128u);
  EXPECT_EQ(offsetof(tandem_problem, grad_out), 144u);
  EXPECT_EQ(offsetof(tandem_problem, options_backend), 176u);
  EXPECT_EQ(offsetof(tandem_problem, options_executor), 200u);
  EXPECT_EQ(offsetof(tandem_problem, options_emulator_seed), 224u);
  EXPECT_EQ(offsetof(tandem_problem, quantization_query), 232u);
  EXPECT_EQ(offsetof(tandem_problem, rope_dims), 276u);
  EXPECT_EQ(offsetof(tandem_problem, quantization_sign_seed), 288u);
  EXPECT_EQ(offsetof(tandem_problem, quantized_query), 296u);
  EXPECT_EQ(offsetof(tandem_problem, rope_sin), 360u);
  EXPECT_EQ(offsetof(tandem_arguments, cu_query), 48u);
  EXPECT_EQ(offsetof(tandem_arguments, sinks), 80u);
  EXPECT_EQ(offsetof(tandem_arguments, grad_value), 112u);
  EXPECT_EQ(offsetof(tandem_arguments, quantized_query), 120u);
  EXPECT_EQ(offsetof(tandem_arguments, position), 224u);
  EXPECT_EQ(offsetof(tandem_kernel, local_bytes), 60u);
  EXPECT_EQ(sizeof(tandem_error), 512u);
}

TEST(CApi, NullPointers) {
  CProblem c;
  tandem_plan* plan = nullptr;
  EXPECT_EQ(tandem_plan_create(TANDEM_FORWARD, nullptr, &plan, nullptr), TANDEM_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_plan_create(TANDEM_FORWARD, &c.problem, nullptr, &c.error), TANDEM_INVALID_ARGUMENT);
  EXPECT_STREQ(c.error.argument, "plan");
  EXPECT_EQ(tandem_plan_run(nullptr, nullptr, nullptr, 0, nullptr, &c.error), TANDEM_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_plan_workspace_bytes(nullptr), 0u);
  EXPECT_EQ(tandem_plan_backend(nullptr), TANDEM_BACKEND_AUTOMATIC);
  char text[4] = "abc";
  EXPECT_EQ(tandem_plan_describe(nullptr, text, sizeof text), 0u);
  EXPECT_STREQ(text, "");
  tandem_plan_destroy(nullptr);
  EXPECT_EQ(tandem_kernel_info(0, nullptr, &c.error), TANDEM_INVALID_ARGUMENT);
}

TEST(CApi, Kernels) {
  tandem_error error;
  tandem_kernel kernel{};
  EXPECT_EQ(tandem_kernel_info(0, &kernel, &error), TANDEM_INVALID_ARGUMENT);
  kernel.struct_size = sizeof kernel;
  EXPECT_EQ(tandem_kernel_info(tandem_kernel_count(), &kernel, &error), TANDEM_INVALID_ARGUMENT);
  EXPECT_STREQ(error.argument, "index");
  for (size_t i = 0; i < tandem_kernel_count(); ++i) {
    ASSERT_EQ(tandem_kernel_info(i, &kernel, &error), TANDEM_OK);
    EXPECT_EQ(kernel.struct_size, sizeof kernel);
    EXPECT_STREQ(kernel.name, kernel_info(i).name);
    EXPECT_EQ(kernel.shared_bytes, kernel_info(i).shared_bytes);
  }
}

TEST(CApi, Names) {
  EXPECT_STREQ(tandem_version(), TANDEM_VERSION);
  EXPECT_STREQ(tandem_backend_name(TANDEM_BACKEND_SM90), "sm90");
  EXPECT_STREQ(tandem_backend_name(100), "unknown");
  EXPECT_STREQ(tandem_code_name(TANDEM_NO_DEVICE), "no device");
}

class CApiRun : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = available(Backend::cpu);
    if (!status.ok()) GTEST_SKIP() << status.message;
    tandem_arguments_init(&arguments, sizeof arguments);
    arguments.query = &c.query;
    arguments.key = arguments.value = &c.key;
    arguments.out = &c.out;
    for (int key = 0; key < 6; ++key) {
      for (int i = 0; i < 32; ++i) c.key_memory[key * 32 + i] = static_cast<float>(key + i % 16);
    }
  }

  void create() {
    ASSERT_EQ(tandem_plan_create(TANDEM_FORWARD, &c.problem, &plan, &c.error), TANDEM_OK) << c.error.message;
    workspace.resize(tandem_plan_workspace_bytes(plan) + 256);
  }

  int32_t run() {
    void* memory = workspace.data();
    size_t space = workspace.size();
    std::align(256, space - 255, memory, space);
    return tandem_plan_run(plan, &arguments, memory, tandem_plan_workspace_bytes(plan), nullptr, &c.error);
  }

  void TearDown() override { tandem_plan_destroy(plan); }

  CProblem c;
  tandem_arguments arguments;
  tandem_plan* plan = nullptr;
  std::vector<unsigned char> workspace;
};

TEST_F(CApiRun, EqualScoresGiveTheMeanValue) {
  create();
  ASSERT_EQ(run(), TANDEM_OK) << c.error.message;
  for (int head = 0; head < 2; ++head) {
    for (int d = 0; d < 16; ++d) {
      double mean = 0;
      for (int key = 0; key < 6; ++key) mean += c.key_memory[(key * 2 + head) * 16 + d] / 6.0;
      EXPECT_NEAR(c.out_memory[head * 16 + d], mean, 1e-5);
    }
  }
  EXPECT_EQ(tandem_plan_backend(plan), TANDEM_BACKEND_CPU);
  const size_t length = tandem_plan_describe(plan, nullptr, 0);
  EXPECT_GT(length, 0u);
  std::vector<char> text(length + 1);
  EXPECT_EQ(tandem_plan_describe(plan, text.data(), text.size()), length);
  EXPECT_EQ(std::strlen(text.data()), length);
  EXPECT_EQ(tandem_plan_describe(plan, text.data(), 3), length);
  EXPECT_EQ(std::strlen(text.data()), 2u);
}

TEST_F(CApiRun, FaultsOfArguments) {
  create();
  arguments.out = nullptr;
  EXPECT_EQ(run(), TANDEM_INVALID_ARGUMENT);
  EXPECT_STREQ(c.error.argument, "out");
  arguments.out = &c.out;
  arguments.cu_key = &c.key;
  EXPECT_EQ(run(), TANDEM_INVALID_ARGUMENT);
  EXPECT_STREQ(c.error.argument, "cu_key");
  arguments.struct_size = 3;
  EXPECT_EQ(run(), TANDEM_INVALID_ARGUMENT);
  EXPECT_STREQ(c.error.argument, "arguments");
  tandem_arguments_init(&arguments, sizeof arguments);
  EXPECT_EQ(tandem_plan_run(plan, nullptr, nullptr, 0, nullptr, &c.error), TANDEM_INVALID_ARGUMENT);
  EXPECT_STREQ(c.error.argument, "arguments");
}

TEST_F(CApiRun, ThreadsOfTheCaller) {
  int64_t tasks = 0;
  c.problem.options_executor = [](void* context, int64_t count, tandem_task task, void* task_context) {
    for (int64_t i = count - 1; i >= 0; --i) task(task_context, i);
    *static_cast<int64_t*>(context) += count;
  };
  c.problem.options_executor_context = &tasks;
  c.problem.options_executor_concurrency = 2;
  create();
  ASSERT_EQ(run(), TANDEM_OK) << c.error.message;
  EXPECT_GT(tasks, 0);
  EXPECT_NEAR(c.out_memory[3], 5.5, 1e-5);
}

}  // namespace
}  // namespace tandem::testing
