// What Plan::run refuses before a backend sees it: one test for each fault of an argument.
#include "support.hpp"

namespace tandem::testing {
namespace {

constexpr Code invalid = Code::invalid_argument;

struct Fault {
  const char* id;
  void (*spoil)(Arguments&);
  const char* argument;
  const char* word;
};

std::string fault_name(const ::testing::TestParamInfo<Fault>& info) { return info.param.id; }

void* shifted(void* data, int bytes) { return static_cast<char*>(data) + bytes; }

class DenseArguments : public ::testing::TestWithParam<Fault> {};

TEST_P(DenseArguments, AreRefused) {
  Bench bench(dense_problem());
  ASSERT_TRUE(bench.run().ok()) << bench.run().message;
  const int before = bench.executable->runs;
  GetParam().spoil(bench.arguments);
  expect_fault(bench.run(), invalid, GetParam().argument, GetParam().word);
  EXPECT_EQ(bench.executable->runs, before);
}

const Fault dense_faults[] = {
    {"query_missing", [](Arguments& a) { a.query = {}; }, "query", "missing"},
    {"key_missing", [](Arguments& a) { a.key = {}; }, "key", "missing"},
    {"value_missing", [](Arguments& a) { a.value = {}; }, "value", "missing"},
    {"out_missing", [](Arguments& a) { a.out = {}; }, "out", "missing"},
    {"lse_missing", [](Arguments& a) { a.lse = {}; }, "lse", "missing"},
    {"query_spec_missing", [](Arguments& a) { a.query.spec = {}; }, "query", "missing"},
    {"query_null", [](Arguments& a) { a.query.data = nullptr; }, "query", "null"},
    {"out_null", [](Arguments& a) { a.out.data = nullptr; }, "out", "null"},
    {"query_misaligned", [](Arguments& a) { a.query.data = shifted(a.query.data, 2); }, "query", "aligned to 16"},
    {"lse_misaligned", [](Arguments& a) { a.lse.data = shifted(a.lse.data, 2); }, "lse", "smaller alignment"},
    {"M2_key_dtype", [](Arguments& a) { a.key.spec.dtype = Dtype::fp16; }, "key", "takes bf16"},
    {"M5_key_device", [](Arguments& a) { a.key.spec.device = cuda(1); }, "key", "CUDA 1"},
    {"value_rank", [](Arguments& a) { a.value.spec.rank = 3; }, "value", "rank 4"},
    {"rank_wild", [](Arguments& a) { a.value.spec.rank = 1000; }, "value", "rank 1000"},
    {"M3_value_rows", [](Arguments& a) { a.value.spec.size[1] = 49; }, "value", "(2, 49, 2, 128)"},
    {"query_strides", [](Arguments& a) { a.query.spec.stride[1] += 64; }, "query", "strides"},
    {"out_strides", [](Arguments& a) { a.out.spec.stride[2] = 64; }, "out", "strides"},
    {"cu_query_unplanned", [](Arguments& a) { a.cu_query = a.lse; }, "cu_query", "without it"},
    {"cu_key_unplanned", [](Arguments& a) { a.cu_key.data = a.lse.data; }, "cu_key", "without it"},
    {"used_query_unplanned", [](Arguments& a) { a.used_query = a.lse; }, "used_query", "without it"},
    {"used_key_unplanned", [](Arguments& a) { a.used_key = a.lse; }, "used_key", "without it"},
    {"sinks_unplanned", [](Arguments& a) { a.sinks = a.lse; }, "sinks", "without it"},
    {"grad_out_unplanned", [](Arguments& a) { a.grad_out = a.out; }, "grad_out", "without it"},
    {"grad_query_unplanned", [](Arguments& a) { a.grad_query = a.query; }, "grad_query", "without it"},
    {"grad_key_unplanned", [](Arguments& a) { a.grad_key = a.key; }, "grad_key", "without it"},
    {"grad_value_unplanned", [](Arguments& a) { a.grad_value = a.value; }, "grad_value", "without it"},
};
INSTANTIATE_TEST_SUITE_P(Run, DenseArguments, ::testing::ValuesIn(dense_faults), fault_name);

Problem everything_problem() {
  Problem problem = packed_problem();
  problem.lengths.used_query = problem.lengths.used_key = true;
  problem.sinks = true;
  return problem;
}

class PackedArguments : public ::testing::TestWithParam<Fault> {};

TEST_P(PackedArguments, AreRefused) {
  Bench bench(everything_problem());
  ASSERT_TRUE(bench.run().ok()) << bench.run().message;
  GetParam().spoil(bench.arguments);
  expect_fault(bench.run(), invalid, GetParam().argument, GetParam().word);
}

const Fault packed_faults[] = {
    {"cu_query_missing", [](Arguments& a) { a.cu_query = {}; }, "cu_query", "lengths.packed_query"},
    {"cu_key_missing", [](Arguments& a) { a.cu_key = {}; }, "cu_key", "lengths.packed_key"},
    {"used_query_missing", [](Arguments& a) { a.used_query = {}; }, "used_query", "lengths.used_query"},
    {"used_key_missing", [](Arguments& a) { a.used_key = {}; }, "used_key", "lengths.used_key"},
    {"sinks_missing", [](Arguments& a) { a.sinks = {}; }, "sinks", "missing"},
    {"cu_query_null", [](Arguments& a) { a.cu_query.data = nullptr; }, "cu_query", "null"},
    {"cu_query_misaligned", [](Arguments& a) { a.cu_query.data = shifted(a.cu_query.data, 2); }, "cu_query",
     "aligned to 4"},
    {"M2_cu_query_int64", [](Arguments& a) { a.cu_query.spec.dtype = Dtype::int64; }, "cu_query", "int32"},
    {"M2_cu_key_float", [](Arguments& a) { a.cu_key.spec.dtype = Dtype::fp32; }, "cu_key", "int32"},
    {"M2_used_key_int64", [](Arguments& a) { a.used_key.spec.dtype = Dtype::int64; }, "used_key", "int32"},
    {"sinks_dtype", [](Arguments& a) { a.sinks.spec.dtype = Dtype::bf16; }, "sinks", "fp32"},
    {"M5_cu_key_device", [](Arguments& a) { a.cu_key.spec.device = cuda(0); }, "cu_key", "takes the CPU"},
    {"cu_query_size", [](Arguments& a) { a.cu_query.spec.size[0] = 3; }, "cu_query", "takes (4)"},
    {"used_query_size", [](Arguments& a) { a.used_query.spec.size[0] = 4; }, "used_query", "takes (3)"},
    {"sinks_per_key_head", [](Arguments& a) { a.sinks.spec.size[0] = 2; }, "sinks", "takes (8)"},
    {"cu_query_rank", [](Arguments& a) { a.cu_query.spec.rank = 2; }, "cu_query", "rank 1"},
    {"cu_query_strided", [](Arguments& a) { a.cu_query.spec.stride[0] = 2; }, "cu_query", "strides"},
};
INSTANTIATE_TEST_SUITE_P(Run, PackedArguments, ::testing::ValuesIn(packed_faults), fault_name);

TEST(Arguments, BackwardNeedsItsGradients) {
  for (TensorView Arguments::*view :
       {&Arguments::out, &Arguments::lse, &Arguments::grad_out, &Arguments::grad_query, &Arguments::grad_value}) {
    Bench bench(backward_problem(), Pass::backward);
    ASSERT_TRUE(bench.run().ok()) << bench.run().message;
    bench.arguments.*view = {};
    const Status status = bench.run();
    EXPECT_EQ(status.code, invalid);
    EXPECT_NE(std::string(status.message).find("missing"), std::string::npos) << status.message;
  }
}

TEST(Arguments, OutAndLseMayLeaveTheirSpecToThePlan) {
  Bench bench(dense_problem());
  bench.arguments.out.spec = {};
  bench.arguments.lse.spec = {};
  EXPECT_TRUE(bench.run().ok()) << bench.run().message;
  bench.arguments.out.data = shifted(bench.arguments.out.data, 2);
  expect_fault(bench.run(), invalid, "out", "aligned");
}

TEST(Arguments, EmptyTensorsNeedNoMemory) {
  Problem problem;
  problem.query = bf16_tensor({2, 32, 8, 64});
  problem.key = problem.value = bf16_tensor({2, 0, 8, 64});
  Bench bench(problem);
  bench.arguments.key.data = bench.arguments.value.data = nullptr;
  EXPECT_TRUE(bench.run().ok()) << bench.run().message;
  problem.query = bf16_tensor({0, 32, 8, 64});
  problem.key = problem.value = bf16_tensor({0, 5, 8, 64});
  Bench empty(problem);
  empty.arguments.query.data = empty.arguments.key.data = empty.arguments.value.data = nullptr;
  empty.arguments.out = {};
  EXPECT_TRUE(empty.run().ok()) << empty.run().message;
}

TEST(Arguments, SmallerAlignmentIsAPromiseOfItsOwn) {
  Problem problem = dense_problem();
  problem.query.alignment = 2;
  Bench bench(problem);
  bench.arguments.query.data = shifted(bench.arguments.query.data, 2);
  EXPECT_TRUE(Plan(bench.executable).run(bench.arguments).ok());
}

TEST(Arguments, LseNeedsTheAlignmentOfItsType) {
  Bench bench(dense_problem());
  bench.arguments.lse.data = shifted(bench.arguments.lse.data, 4);
  EXPECT_TRUE(bench.run().ok()) << bench.run().message;
}

TEST(Arguments, Workspace) {
  alignas(256) static char memory[2048];
  const Bench bench(dense_problem(), Pass::forward, 1024);
  EXPECT_TRUE(bench.run(memory, 1024).ok());
  EXPECT_TRUE(bench.run(memory, 2048).ok());
  expect_fault(bench.run(memory, 1023), invalid, "workspace_bytes", "needs 1024");
  expect_fault(bench.run(nullptr, 0), invalid, "workspace_bytes", "needs 1024");
  expect_fault(bench.run(nullptr, 1024), invalid, "workspace", "null");
  expect_fault(bench.run(memory + 16, 1024), invalid, "workspace", "aligned to 256");
}

}  // namespace
}  // namespace tandem::testing
