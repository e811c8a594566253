// 8-bit problems: what the forward pass and the quantiser make of them, and one test for each way in which one can be
// wrong. Names begin with the id of the known fault of other libraries that a case stands for, where there is one.
#include "plan/scales.hpp"
#include "support.hpp"

namespace tandem::testing {
namespace {

using internal::resolve;

constexpr Code invalid = Code::invalid_argument, unsupported = Code::unsupported;

TensorSpec e4m3_tensor(std::initializer_list<int64_t> size) { return contiguous(Dtype::e4m3, cpu(), size); }
TensorSpec floats(std::initializer_list<int64_t> size) { return contiguous(Dtype::fp32, cpu(), size); }

/// dense_problem() in 8 bits: 48 keys are 3 groups of a packed value; scales of blocks of 64 and 32 rows.
Problem quantised_problem() {
  Problem problem = dense_problem();
  problem.query.dtype = problem.key.dtype = Dtype::e4m3;
  problem.value = e4m3_tensor({2, 2, 3, 128, 16});
  problem.quantization.query_rows = 64;
  problem.quantization.key_rows = problem.quantization.value_rows = 32;
  return problem;
}

/// packed_problem() in 8 bits: 96 keys of 3 sequences have 96 / 16 + 3 groups.
Problem packed_quantised_problem() {
  Problem problem = packed_problem();
  problem.query.dtype = problem.key.dtype = Dtype::e4m3;
  problem.value = e4m3_tensor({2, 9, 128, 16});
  problem.quantization = quantised_problem().quantization;
  return problem;
}

Problem quantising_problem() {
  Problem problem = dense_problem();
  problem.lse = {};
  problem.quantization = quantised_problem().quantization;
  return problem;
}

std::vector<int64_t> shape(const TensorSpec& spec) { return {spec.size.begin(), spec.size.begin() + spec.rank}; }
using Shape = std::vector<int64_t>;

TEST(Quantised, ScalesAreFilledIn) {
  const auto dense = resolve(Pass::forward, quantised_problem());
  ASSERT_TRUE(dense.ok()) << dense.status().message;
  EXPECT_EQ(dense->dtype, Dtype::e4m3);
  EXPECT_EQ(dense->out.dtype, Dtype::bf16);
  EXPECT_EQ(dense->value_dim, 128);
  EXPECT_EQ(shape(dense->out), (Shape{2, 32, 8, 128}));
  EXPECT_EQ(shape(dense->query_scale), (Shape{2, 8, 1}));
  EXPECT_EQ(shape(dense->key_scale), (Shape{2, 2, 2}));
  EXPECT_EQ(dense->key_scale.alignment, 4);
  const auto packed = resolve(Pass::forward, packed_quantised_problem());
  ASSERT_TRUE(packed.ok()) << packed.status().message;
  EXPECT_EQ(shape(packed->query_scale), (Shape{8, 64 / 64 + 3}));
  EXPECT_EQ(shape(packed->key_scale), (Shape{2, 96 / 32 + 3}));
  Problem problem = quantised_problem();
  problem.quantization.query = Granularity::tensor;
  problem.quantization.key = Granularity::head;
  const auto coarse = resolve(Pass::forward, problem);
  ASSERT_TRUE(coarse.ok()) << coarse.status().message;
  EXPECT_EQ(shape(coarse->query_scale), (Shape{1}));
  EXPECT_EQ(shape(coarse->key_scale), (Shape{2, 2}));
  EXPECT_EQ(coarse->quantization.key_rows, 0) << "rows mean nothing without blocks";
}

TEST(Quantised, BackendsChooseBlocks) {
  Problem problem = quantised_problem();
  problem.quantization.key_rows = 0;
  const auto resolved = resolve(Pass::forward, problem);
  ASSERT_TRUE(resolved.ok()) << resolved.status().message;
  EXPECT_FALSE(resolved->key_scale.present());
  internal::Attention attention = *resolved;
  ASSERT_TRUE(internal::choose_blocks(attention, {64, 128}, {16, 16}, {32, 64}).ok());
  EXPECT_EQ(attention.quantization.query_rows, 64);
  EXPECT_EQ(attention.quantization.key_rows, 16);
  EXPECT_EQ(shape(attention.key_scale), (Shape{2, 2, 3}));
  attention = *resolved;
  expect_fault(internal::choose_blocks(attention, {64, 64}, {16, 16}, {48, 48}), unsupported, "quantization.value_rows",
               "multiples of 48");
  problem.key_scale = floats({2, 2, 4});
  attention = *resolve(Pass::forward, problem);
  expect_fault(internal::choose_blocks(attention, {64, 64}, {16, 16}, {32, 32}), invalid, "key_scale", "(2, 2, 3)");
}

struct Fault {
  const char* id;
  void (*spoil)(Problem&);
  Code code;
  const char* argument;
  const char* word;
};
std::string fault_name(const ::testing::TestParamInfo<Fault>& info) { return info.param.id; }

class QuantisedFault : public ::testing::TestWithParam<Fault> {};
TEST_P(QuantisedFault, IsRefused) {
  Problem problem = quantised_problem();
  GetParam().spoil(problem);
  const auto result = resolve(Pass::forward, problem);
  ASSERT_FALSE(result.ok());
  expect_fault(result.status(), GetParam().code, GetParam().argument, GetParam().word);
}

constexpr float infinity = std::numeric_limits<float>::infinity();

const Fault forward_faults[] = {
    {"key_int8", [](Problem& p) { p.key.dtype = Dtype::int8; }, invalid, "key", "but query has e4m3"},
    {"key_bf16", [](Problem& p) { p.key.dtype = Dtype::bf16; }, invalid, "key", "must agree"},
    {"value_int8", [](Problem& p) { p.value.dtype = Dtype::int8; }, invalid, "value", "must be e4m3"},
    {"value_bf16", [](Problem& p) { p.value.dtype = Dtype::bf16; }, invalid, "value", "must be e4m3"},
    {"out_fp32",
     [](Problem& p) {
       p.out = floats({2, 32, 8, 128});
     },
     invalid, "out", "bf16, fp16 or e4m3"},
    {"out_int8",
     [](Problem& p) {
       p.out = e4m3_tensor({2, 32, 8, 128});
       p.out.dtype = Dtype::int8;
     },
     invalid, "out", "bf16, fp16 or e4m3"},
    {"value_rows_layout",
     [](Problem& p) {
       p.value = e4m3_tensor({2, 48, 2, 128});
     },
     invalid, "value", "rank 4"},
    {"value_groups_in_rows", [](Problem& p) { p.quantization.value_layout = ValueLayout::rows; }, invalid, "value",
     "rank 5"},
    {"value_layout", [](Problem& p) { p.quantization.value_layout = static_cast<ValueLayout>(2); }, invalid,
     "quantization.value_layout", "isn't one of"},
    {"value_groups",
     [](Problem& p) {
       p.value = e4m3_tensor({2, 2, 4, 128, 16});
     },
     invalid, "value", "(2, 2, 3, 128"},
    {"value_group_keys",
     [](Problem& p) {
       p.value = e4m3_tensor({2, 2, 3, 128, 8});
     },
     invalid, "value", "(2, 2, 3, 128"},
    {"value_heads",
     [](Problem& p) {
       p.value = e4m3_tensor({2, 1, 3, 128, 16});
     },
     invalid, "value", "(2, 2, 3, 128"},
    {"value_stride", [](Problem& p) { p.value.stride[3] = 32; }, invalid, "value", "stride[3]"},
    {"L6_key_scale_rank",
     [](Problem& p) {
       p.key_scale = floats({2, 2});
     },
     invalid, "key_scale", "(2, 2, 2)"},
    {"L6_key_scale_batch_of_one",
     [](Problem& p) {
       p.quantization.key = Granularity::head;
       p.key_scale = floats({1, 2});
     },
     invalid, "key_scale", "(batch, key_heads)"},
    {"L6_key_scale_query_heads",
     [](Problem& p) {
       p.quantization.key = Granularity::head;
       p.key_scale = floats({2, 8});
     },
     invalid, "key_scale", "must be (2, 2), (batch, key_heads)"},
    {"L6_query_scale_scalar",
     [](Problem& p) {
       p.quantization.query = Granularity::head;
       p.query_scale = floats({1});
     },
     invalid, "query_scale", "(2, 8), (batch, query_heads)"},
    {"L6_value_scale_fp16",
     [](Problem& p) {
       p.quantization.value = Granularity::head;
       p.value_scale = floats({2, 2});
       p.value_scale.dtype = Dtype::fp16;
     },
     invalid, "value_scale", "must be fp32 of sizes (2, 2)"},
    {"L6_value_scale_device",
     [](Problem& p) {
       p.value_scale = floats({2, 2, 2});
       p.value_scale.device = cuda(0);
     },
     invalid, "value_scale", "CUDA 0"},
    {"granularity", [](Problem& p) { p.quantization.key = static_cast<Granularity>(3); }, invalid, "quantization.key",
     "Granularity"},
    {"rows_negative", [](Problem& p) { p.quantization.value_rows = -1; }, invalid, "quantization.value_rows", "-1"},
    {"value_mean_unasked",
     [](Problem& p) {
       p.value_mean = floats({2, 2, 128});
     },
     invalid, "value_mean", "is false"},
    {"value_mean_shape",
     [](Problem& p) {
       p.quantization.value_mean = true;
       p.value_mean = floats({2, 8, 128});
     },
     invalid, "value_mean", "(2, 2, 128)"},
    {"quantized_query", [](Problem& p) { p.quantized_query = p.query; }, invalid, "quantized_query", "forward pass"},
    {"rope", [](Problem& p) { p.rope.dims = 64; }, invalid, "rope.dims", "forward pass"},
    {"rope_cos",
     [](Problem& p) {
       p.rope_cos = floats({48, 32});
     },
     invalid, "rope_cos", "forward pass"},
    {"scale", [](Problem& p) { p.scale = infinity; }, invalid, "scale", "finite"},
    {"sixteen_bits_with_scale",
     [](Problem& p) {
       p = dense_problem();
       p.key_scale = floats({2, 2});
     },
     invalid, "key_scale", "only 8-bit"},
    {"sixteen_bits_with_mean",
     [](Problem& p) {
       p = dense_problem();
       p.quantization.value_mean = true;
     },
     invalid, "quantization.value_mean", "only 8-bit"},
};
INSTANTIATE_TEST_SUITE_P(Forward, QuantisedFault, ::testing::ValuesIn(forward_faults), fault_name);

TEST(Quantised, L8BackwardIsForwardOnly) {
  Problem problem = backward_problem();
  problem.query.dtype = problem.key.dtype = Dtype::e4m3;
  expect_fault(resolve(Pass::backward, problem).status(), unsupported, "query", "forward only");
  problem.grad_key = {};
  expect_fault(resolve(Pass::backward, problem).status(), unsupported, "query", "forward only");
}

TEST(Quantising, ShapesAndDefaults) {
  Problem problem = quantising_problem();
  problem.quantization.value_mean = true;
  const auto resolved = resolve(Pass::quantize, problem);
  ASSERT_TRUE(resolved.ok()) << resolved.status().message;
  EXPECT_EQ(resolved->dtype, Dtype::bf16);
  EXPECT_EQ(resolved->quantized_query.dtype, Dtype::e4m3);
  EXPECT_EQ(shape(resolved->quantized_key), (Shape{2, 48, 2, 64}));
  EXPECT_EQ(shape(resolved->quantized_value), (Shape{2, 2, 3, 128, 16}));
  EXPECT_EQ(shape(resolved->value_mean), (Shape{2, 2, 128}));
  problem.quantized_query = e4m3_tensor({2, 32, 8, 64});
  problem.quantized_query.dtype = Dtype::int8;
  ASSERT_TRUE(resolve(Pass::quantize, problem).ok());
}

TEST(Quantising, AKnownMeanMayBeBroadcast) {
  Problem problem = quantising_problem();
  problem.quantization.value_mean = true;
  problem.value_mean = floats({2, 2, 128});
  problem.value_mean.stride[0] = 0;  // one for the whole batch
  expect_fault(resolve(Pass::quantize, problem).status(), invalid, "value_mean", "overlap");
  problem.quantization.known_mean = true;
  const auto resolved = resolve(Pass::quantize, problem);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message;
}

TEST(Quantising, OneTensorIsEnough) {
  for (const auto kept : {&Problem::query, &Problem::key, &Problem::value}) {
    Problem problem = quantising_problem();
    problem.query = problem.key = problem.value = {};
    problem.*kept = quantising_problem().*kept;
    // Lengths of a side that isn't there don't matter: one struct serves all passes.
    problem.lengths.used_query = problem.lengths.used_key = true;
    const auto resolved = resolve(Pass::quantize, problem);
    ASSERT_TRUE(resolved.ok()) << resolved.status().message;
    EXPECT_EQ(resolved->query_scale.present(), kept == &Problem::query);
    EXPECT_EQ(resolved->key_scale.present(), kept == &Problem::key);
    EXPECT_EQ(resolved->used_query, kept == &Problem::query);
    EXPECT_EQ(resolved->used_key, kept != &Problem::query);
    EXPECT_EQ(resolved->batch, 2);
  }
}

class QuantisingFault : public ::testing::TestWithParam<Fault> {};
TEST_P(QuantisingFault, IsRefused) {
  Problem problem = quantising_problem();
  ASSERT_TRUE(resolve(Pass::quantize, problem).ok());
  GetParam().spoil(problem);
  const auto result = resolve(Pass::quantize, problem);
  ASSERT_FALSE(result.ok());
  expect_fault(result.status(), GetParam().code, GetParam().argument, GetParam().word);
}

void set_rope(Problem& p, int dims, std::initializer_list<int64_t> cos, std::initializer_list<int64_t> sin) {
  p.rope.dims = dims;
  p.rope_cos = floats(cos);
  p.rope_sin = floats(sin);
}

const Fault quantising_faults[] = {
    {"nothing", [](Problem& p) { p.query = p.key = p.value = {}; }, invalid, "query", "one of them"},
    {"query_fp32", [](Problem& p) { p.query.dtype = Dtype::fp32; }, invalid, "query", "bf16 or fp16"},
    {"query_e4m3", [](Problem& p) { p.query.dtype = Dtype::e4m3; }, invalid, "query", "bf16 or fp16"},
    {"key_fp16", [](Problem& p) { p.key.dtype = Dtype::fp16; }, invalid, "key", "must agree"},
    {"value_device", [](Problem& p) { p.value.device = cuda(0); }, invalid, "value", "must agree"},
    {"key_head_dim",
     [](Problem& p) {
       p.key = bf16_tensor({2, 48, 2, 32});
     },
     invalid, "key", "must agree"},
    {"key_heads",
     [](Problem& p) {
       p.key = bf16_tensor({2, 48, 3, 64});
       p.value = {};
     },
     invalid, "key", "divide"},
    {"value_rows",
     [](Problem& p) {
       p.value = bf16_tensor({2, 47, 2, 128});
     },
     invalid, "value", "must agree"},
    {"rank",
     [](Problem& p) {
       p.query = bf16_tensor({64, 8, 64});
     },
     invalid, "query", "rank 3"},
    {"block_rows", [](Problem& p) { p.quantization.key_rows = 0; }, invalid, "quantization.key_rows", "forward plan"},
    {"quantized_without_source",
     [](Problem& p) {
       p.quantized_key = e4m3_tensor({2, 48, 2, 64});
       p.key = {};
     },
     invalid, "key", "quantized_key is given"},
    {"scale_without_source",
     [](Problem& p) {
       p.key_scale = floats({2, 2, 2});
       p.key = {};
     },
     invalid, "key", "key_scale is given"},
    {"quantized_dtype",
     [](Problem& p) {
       p.quantized_key = bf16_tensor({2, 48, 2, 64});
     },
     invalid, "quantized_key", "e4m3 or int8"},
    {"quantized_value_int8",
     [](Problem& p) {
       p.quantized_value = e4m3_tensor({2, 2, 3, 128, 16});
       p.quantized_value.dtype = Dtype::int8;
     },
     invalid, "quantized_value", "must be e4m3"},
    {"quantized_shape",
     [](Problem& p) {
       p.quantized_query = e4m3_tensor({2, 32, 8, 128});
     },
     invalid, "quantized_query", "(2, 32, 8, 64)"},
    {"quantized_value_shape",
     [](Problem& p) {
       p.quantized_value = e4m3_tensor({2, 48, 2, 128});
     },
     invalid, "quantized_value", "packed asks"},
    {"quantized_overlap",
     [](Problem& p) {
       p.quantized_key = e4m3_tensor({2, 48, 2, 64});
       p.quantized_key.stride[1] = 0;
     },
     invalid, "quantized_key", "overlap"},
    {"scale_overlap",
     [](Problem& p) {
       p.key_scale = floats({2, 2, 2});
       p.key_scale.stride[0] = 0;
     },
     invalid, "key_scale", "overlap"},
    {"value_layout", [](Problem& p) { p.quantization.value_layout = static_cast<ValueLayout>(9); }, invalid,
     "quantization.value_layout", "ValueLayout"},
    {"known_mean_of_none", [](Problem& p) { p.quantization.known_mean = true; }, invalid, "quantization.known_mean",
     "quantization.value_mean"},
    {"amax_of_blocks", [](Problem& p) { p.quantization.amax = true; }, invalid, "quantization.amax", "block scales"},
    {"out",
     [](Problem& p) {
       p.out = bf16_tensor({2, 32, 8, 128});
     },
     invalid, "out", "takes none"},
    {"lse",
     [](Problem& p) {
       p.lse = floats({2, 8, 32});
     },
     invalid, "lse", "takes none"},
    {"causal", [](Problem& p) { p.mask.causal = true; }, invalid, "mask.causal", "takes none"},
    {"softcap", [](Problem& p) { p.softcap = 3; }, invalid, "softcap", "takes none"},
    {"scale", [](Problem& p) { p.scale = 1.0F; }, invalid, "scale", "takes none"},
    {"sinks", [](Problem& p) { p.sinks = true; }, invalid, "sinks", "takes none"},
    {"rope_odd",
     [](Problem& p) {
       set_rope(p, 31, {48, 15}, {48, 15});
     },
     invalid, "rope.dims", "even"},
    {"rope_wide",
     [](Problem& p) {
       set_rope(p, 66, {48, 33}, {48, 33});
     },
     invalid, "rope.dims", "head_dim"},
    {"rope_without_table", [](Problem& p) { p.rope.dims = 64; }, invalid, "rope_cos", "missing"},
    {"table_without_rope",
     [](Problem& p) {
       p.rope_cos = floats({48, 32});
     },
     invalid, "rope.dims", "is 0"},
    {"H7_rope_full_width",
     [](Problem& p) {
       set_rope(p, 16, {48, 16}, {48, 16});
     },
     invalid, "rope_cos", "(48, 8)"},
    {"H8_rope_short",
     [](Problem& p) {
       set_rope(p, 16, {47, 8}, {47, 8});
     },
     invalid, "rope_cos", "(48, 8)"},
    {"H8_rope_sin_shorter",
     [](Problem& p) {
       set_rope(p, 16, {64, 8}, {32, 8});
     },
     invalid, "rope_sin", "(64, 8)"},
    {"rope_without_query",
     [](Problem& p) {
       set_rope(p, 16, {48, 8}, {48, 8});
       p.query = p.key = {};
     },
     invalid, "rope.dims", "neither"},
};
INSTANTIATE_TEST_SUITE_P(Quantising, QuantisingFault, ::testing::ValuesIn(quantising_faults), fault_name);

TEST(QuantisedArguments, OnlyWhatThePlanTakes) {
  Problem problem = quantised_problem();
  problem.out = e4m3_tensor({2, 32, 8, 128});
  problem.quantization.key = Granularity::head;
  Bench bench(problem);
  ASSERT_TRUE(bench.run().ok()) << bench.run().message;
  const Arguments good = bench.arguments;
  const struct {
    const char* argument;
    const char* word;
    std::function<void(Arguments&)> spoil;
  } faults[] = {
      {"query_scale", "missing", [](Arguments& a) { a.query_scale = {}; }},
      {"out_scale", "out of e4m3", [](Arguments& a) { a.out_scale = {}; }},
      {"out_scale", "sizes (2)", [](Arguments& a) { a.out_scale.spec.size[0] = 2; }},
      {"key_scale", "takes (2, 2)",
       [](Arguments& a) {
         a.key_scale.spec = floats({1, 2});
       }},
      {"key_scale", "fp16", [](Arguments& a) { a.key_scale.spec.dtype = Dtype::fp16; }},
      {"key_scale", "CUDA", [](Arguments& a) { a.key_scale.spec.device = cuda(0); }},
      {"value_mean", "without it", [](Arguments& a) { a.value_mean = a.key_scale; }},
      {"query_amax", "without it", [](Arguments& a) { a.query_amax = a.key_scale; }},
      {"position", "without it", [](Arguments& a) { a.position = a.key_scale; }},
  };
  for (const auto& fault : faults) {
    bench.arguments = good;
    fault.spoil(bench.arguments);
    expect_fault(bench.run(), invalid, fault.argument, fault.word);
  }
  bench.arguments = good;
  bench.arguments.query_scale.spec = {};  // the pointer alone will do
  EXPECT_TRUE(bench.run().ok()) << bench.run().message;
}

TEST(QuantisingArguments, AmaxAndPositions) {
  Problem problem = quantising_problem();
  problem.quantization.amax = true;
  problem.quantization.key = Granularity::head;
  problem.rope.positions = true;
  set_rope(problem, 16, {64, 8}, {64, 8});
  problem.rope.positions = true;
  Bench bench(problem, Pass::quantize);
  expect_fault(bench.run(), invalid, "position", "rope.positions");
  std::vector<int32_t> positions = {0, 16};
  bench.arguments.position = {contiguous(Dtype::int32, cpu(), {2}), positions.data()};
  expect_fault(bench.run(), invalid, "key_amax", "quantization.amax");
  bench.arguments.key_amax = bench.view(floats({2, 2}));
  EXPECT_TRUE(bench.run().ok()) << bench.run().message;
  positions[1] = 17;  // 48 rows from there on end at 65, past the table
  expect_fault(bench.run(), invalid, "position", "position[1] is 17");
  positions[1] = -1;
  expect_fault(bench.run(), invalid, "position", "position[1] is -1");
}

}  // namespace
}  // namespace tandem::testing
