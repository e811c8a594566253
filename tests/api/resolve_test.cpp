// resolve(): what a problem becomes, and one test for each way in which it can be wrong. Names begin with the id of the
// known fault of other libraries that a case stands for, where there is one.
#include "support.hpp"

namespace tandem::testing {
namespace {

using internal::resolve;

struct Fault {
  const char* id;
  void (*spoil)(Problem&);
  Code code;
  const char* argument;
  const char* word;
};

constexpr Code invalid = Code::invalid_argument, unsupported = Code::unsupported;

std::string fault_name(const ::testing::TestParamInfo<Fault>& info) { return info.param.id; }

class DenseFault : public ::testing::TestWithParam<Fault> {};

TEST_P(DenseFault, IsRefused) {
  Problem problem = dense_problem();
  ASSERT_TRUE(resolve(Pass::forward, problem).ok());
  GetParam().spoil(problem);
  const auto result = resolve(Pass::forward, problem);
  ASSERT_FALSE(result.ok());
  expect_fault(result.status(), GetParam().code, GetParam().argument, GetParam().word);
}

constexpr float infinity = std::numeric_limits<float>::infinity();

const Fault tensor_faults[] = {
    {"query_missing", [](Problem& p) { p.query = {}; }, invalid, "query", "missing"},
    {"key_missing", [](Problem& p) { p.key = {}; }, invalid, "key", "missing"},
    {"value_missing", [](Problem& p) { p.value = {}; }, invalid, "value", "missing"},
    {"dtype_unknown", [](Problem& p) { p.query.dtype = static_cast<Dtype>(99); }, invalid, "query", "dtype 99"},
    {"dtype_int", [](Problem& p) { p.query.dtype = Dtype::int32; }, invalid, "query", "must be bf16"},
    {"dtype_e4m3", [](Problem& p) { p.query.dtype = Dtype::e4m3; }, invalid, "key", "but query has e4m3"},
    {"M2_key_dtype", [](Problem& p) { p.key.dtype = Dtype::fp16; }, invalid, "key", "but query has bf16"},
    {"M2_value_dtype", [](Problem& p) { p.value.dtype = Dtype::fp32; }, invalid, "value", "but query has bf16"},
    {"out_dtype",
     [](Problem& p) {
       p.out = bf16_tensor({2, 32, 8, 128});
       p.out.dtype = Dtype::fp16;
     },
     invalid, "out", "but query has bf16"},
    {"lse_dtype", [](Problem& p) { p.lse.dtype = Dtype::bf16; }, invalid, "lse", "must be fp32"},
    {"device_kind", [](Problem& p) { p.query.device.kind = static_cast<DeviceKind>(7); }, invalid, "query", "kind 7"},
    {"device_index", [](Problem& p) { p.query.device = cuda(-1); }, invalid, "query", "index -1"},
    {"M5_key_device", [](Problem& p) { p.key.device = cuda(1); }, invalid, "key", "CUDA 1"},
    {"M5_out_device",
     [](Problem& p) {
       p.out = bf16_tensor({2, 32, 8, 128});
       p.out.device = cuda(0);
     },
     invalid, "out", "CUDA 0"},
    {"M5_lse_device", [](Problem& p) { p.lse.device = cuda(0); }, invalid, "lse", "CUDA 0"},
    {"query_rank",
     [](Problem& p) {
       p.query = bf16_tensor({64, 8, 64});
     },
     invalid, "query", "rank 3"},
    {"key_rank",
     [](Problem& p) {
       p.key = bf16_tensor({2, 2, 48, 1, 64});
     },
     invalid, "key", "rank 5"},
    {"rank_past_limit",
     [](Problem& p) {
       p.query = bf16_tensor({1, 1, 1, 1, 1, 1});
     },
     invalid, "query", "rank 6"},
    {"rank_negative", [](Problem& p) { p.query.rank = -1; }, invalid, "query", "rank -1"},
    {"size_negative", [](Problem& p) { p.key.size[1] = -48; }, invalid, "key", "size[1]"},
    {"stride_negative", [](Problem& p) { p.value.stride[1] = -256; }, invalid, "value", "negative strides"},
    {"stride_last", [](Problem& p) { p.query.stride[3] = 2; }, invalid, "query", "last stride"},
    {"stride_last_zero", [](Problem& p) { p.query.stride[3] = 0; }, invalid, "query", "last stride"},
    {"alignment_zero", [](Problem& p) { p.query.alignment = 0; }, invalid, "query", "alignment"},
    {"alignment_odd", [](Problem& p) { p.query.alignment = 24; }, invalid, "query", "power of two"},
    {"alignment_below_element", [](Problem& p) { p.lse.alignment = 2; }, invalid, "lse", "at least 4"},
    {"sizes_overflow",
     [](Problem& p) {
       p.query = bf16_tensor({INT64_C(1) << 29, INT64_C(1) << 29, 8, 64});
       p.lse = {};
     },
     invalid, "query", "overflows"},
    {"strides_overflow", [](Problem& p) { p.key.stride[0] = INT64_MAX / 2; }, invalid, "key", "overflows"},
    {"stride_of_empty_overflows",
     [](Problem& p) {
       p.key = p.value = bf16_tensor({2, 0, INT64_C(1) << 62, 4});
     },
     invalid, "key", "overflows"},
    {"head_dim_differs",
     [](Problem& p) {
       p.key = bf16_tensor({2, 48, 2, 72});
     },
     invalid, "key", "head_dim of key is 72"},
    {"M9_head_dim_zero",
     [](Problem& p) {
       p.query = bf16_tensor({2, 32, 8, 0});
     },
     invalid, "query", "1 to 512"},
    {"head_dim_too_large",
     [](Problem& p) {
       p.query = bf16_tensor({2, 32, 8, 520});
     },
     invalid, "query", "1 to 512"},
    {"M9_value_dim_zero",
     [](Problem& p) {
       p.value = bf16_tensor({2, 48, 2, 0});
     },
     invalid, "value", "1 to 512"},
    {"value_dim_too_large",
     [](Problem& p) {
       p.value = bf16_tensor({2, 48, 2, 513});
     },
     invalid, "value", "1 to 512"},
    {"M3_value_rows",
     [](Problem& p) {
       p.value = bf16_tensor({2, 49, 2, 128});
     },
     invalid, "value", "49 rows"},
    {"M3_value_rows_many",
     [](Problem& p) {
       p.value = bf16_tensor({2, 4000000, 2, 128});
     },
     invalid, "value", "rows"},
    {"value_heads",
     [](Problem& p) {
       p.value = bf16_tensor({2, 48, 1, 128});
     },
     invalid, "value", "1 heads"},
    {"value_batch",
     [](Problem& p) {
       p.value = bf16_tensor({1, 48, 2, 128});
     },
     invalid, "value", "1 batch entries"},
    {"M4_heads_33_over_2",
     [](Problem& p) {
       p.query = bf16_tensor({2, 32, 33, 64});
     },
     invalid, "key", "must divide"},
    {"M4_heads_3_over_2",
     [](Problem& p) {
       p.query = bf16_tensor({2, 32, 3, 64});
     },
     invalid, "key", "must divide"},
    {"M4_no_key_heads",
     [](Problem& p) {
       p.key = bf16_tensor({2, 48, 0, 64});
       p.value = bf16_tensor({2, 48, 0, 128});
     },
     invalid, "key", "has 0 heads"},
    {"M4_no_query_heads",
     [](Problem& p) {
       p.query = bf16_tensor({2, 32, 0, 64});
     },
     invalid, "query", "has 0 heads"},
    {"key_batch",
     [](Problem& p) {
       p.key = bf16_tensor({3, 48, 2, 64});
       p.value = bf16_tensor({3, 48, 2, 128});
     },
     invalid, "key", "batch 3"},
    {"out_sizes",
     [](Problem& p) {
       p.out = bf16_tensor({2, 32, 8, 64});
     },
     invalid, "out", "must be (2, 32, 8, 128)"},
    {"out_overlaps",
     [](Problem& p) {
       p.out = bf16_tensor({2, 32, 8, 128});
       p.out.stride[0] = 0;
     },
     invalid, "out", "overlap"},
    {"out_rows_overlap",
     [](Problem& p) {
       p.out = bf16_tensor({2, 32, 8, 128});
       p.out.stride[1] = 7 * 128;
     },
     invalid, "out", "overlap"},
    {"lse_sizes",
     [](Problem& p) {
       p.lse = contiguous(Dtype::fp32, cpu(), {2, 32, 8});
     },
     invalid, "lse", "(2, 8, 32)"},
    {"lse_rank",
     [](Problem& p) {
       p.lse = contiguous(Dtype::fp32, cpu(), {8, 64});
     },
     invalid, "lse", "(2, 8, 32)"},
    {"lse_overlaps", [](Problem& p) { p.lse.stride[2] = 0; }, invalid, "lse", "overlap"},
    {"rows_past_limit",
     [](Problem& p) {
       p.key = p.value = bf16_tensor({1, internal::row_limit, 2, 64});
       p.key.stride[1] = p.value.stride[1] = 0;
       p.query = bf16_tensor({1, 32, 8, 64});
       p.lse = {};
     },
     invalid, "key", "too many rows"},
    {"total_past_limit",
     [](Problem& p) {
       p.query = bf16_tensor({INT64_C(1) << 20, internal::row_limit >> 20, 8, 64});
       p.key = bf16_tensor({INT64_C(1) << 20, 1, 8, 64});
       p.value = p.key;
       p.lse = {};
     },
     invalid, "query", "too many rows"},
    {"forward_takes_no_grad_out", [](Problem& p) { p.grad_out = p.query; }, invalid, "grad_out", "forward"},
    {"forward_takes_no_grad_query", [](Problem& p) { p.grad_query = p.query; }, invalid, "grad_query", "forward"},
    {"forward_takes_no_grad_key", [](Problem& p) { p.grad_key = p.query; }, invalid, "grad_key", "forward"},
    {"forward_takes_no_grad_value", [](Problem& p) { p.grad_value = p.query; }, invalid, "grad_value", "forward"},
};
INSTANTIATE_TEST_SUITE_P(Tensors, DenseFault, ::testing::ValuesIn(tensor_faults), fault_name);

const Fault option_faults[] = {
    {"scale_nan", [](Problem& p) { p.scale = std::numeric_limits<float>::quiet_NaN(); }, invalid, "scale", "finite"},
    {"scale_infinite", [](Problem& p) { p.scale = infinity; }, invalid, "scale", "finite"},
    {"softcap_negative", [](Problem& p) { p.softcap = -1; }, invalid, "softcap", "0 (none) or more"},
    {"softcap_nan", [](Problem& p) { p.softcap = std::numeric_limits<float>::quiet_NaN(); }, invalid, "softcap", "nan"},
    {"D7_left", [](Problem& p) { p.mask.left = -5; }, invalid, "mask.left", "-1 for unlimited"},
    {"D7_right", [](Problem& p) { p.mask.right = -3; }, invalid, "mask.right", "-1 for unlimited"},
    {"causal_with_right",
     [](Problem& p) {
       p.mask.causal = true;
       p.mask.right = 2;
     },
     invalid, "mask.right", "mask.causal"},
    {"diagonal_large", [](Problem& p) { p.mask.diagonal = internal::row_limit; }, invalid, "mask.diagonal",
     "must lie within"},
    {"diagonal_small", [](Problem& p) { p.mask.diagonal = INT64_MIN; }, invalid, "mask.diagonal", "must lie within"},
    {"I8_splits_negative", [](Problem& p) { p.options.num_splits = -3; }, invalid, "options.num_splits", "at least 1"},
    {"I8_splits_zero", [](Problem& p) { p.options.num_splits = 0; }, invalid, "options.num_splits", "at least 1"},
    {"I8_splits_many", [](Problem& p) { p.options.num_splits = 257; }, unsupported, "options.num_splits", "only 1"},
    {"threads_negative", [](Problem& p) { p.options.threads = -1; }, invalid, "options.threads", "1 to 4096"},
    {"threads_many", [](Problem& p) { p.options.threads = INT32_MAX; }, invalid, "options.threads", "1 to 4096"},
    {"executor_empty", [](Problem& p) { p.options.executor = std::make_shared<Executor>(); }, invalid,
     "options.executor", "parallel"},
    {"executor_concurrency",
     [](Problem& p) {
       p.options.executor =
           std::make_shared<Executor>(Executor{[](int64_t, const std::function<void(int64_t)>&) {}, 0});
     },
     invalid, "options.executor", "concurrency"},
    {"backend_unknown", [](Problem& p) { p.options.backend = static_cast<Backend>(9); }, invalid, "options.backend",
     "backend 9"},
    {"sm90_on_cpu_memory", [](Problem& p) { p.options.backend = Backend::sm90; }, invalid, "options.backend",
     "CUDA memory"},
    {"M2_fp32_emulated",
     [](Problem& p) {
       p.query.dtype = p.key.dtype = p.value.dtype = Dtype::fp32;
       p.options.backend = Backend::emulator;
     },
     unsupported, "query", "fp32"},
    {"batch_differs", [](Problem& p) { p.lengths.batch = 3; }, invalid, "query", "batch 2"},
    {"batch_negative", [](Problem& p) { p.lengths.batch = -2; }, invalid, "lengths.batch", "-2"},
    {"max_query_dense", [](Problem& p) { p.lengths.max_query = 31; }, invalid, "lengths.max_query", "isn't packed"},
    {"max_key_dense", [](Problem& p) { p.lengths.max_key = 49; }, invalid, "lengths.max_key", "isn't packed"},
    {"max_negative", [](Problem& p) { p.lengths.max_key = -7; }, invalid, "lengths.max_key", "-7"},
    {"packed_needs_rank_3", [](Problem& p) { p.lengths.packed_query = true; }, invalid, "query", "packed"},
};
INSTANTIATE_TEST_SUITE_P(Options, DenseFault, ::testing::ValuesIn(option_faults), fault_name);

class PackedFault : public ::testing::TestWithParam<Fault> {};

TEST_P(PackedFault, IsRefused) {
  Problem problem = packed_problem();
  ASSERT_TRUE(resolve(Pass::forward, problem).ok());
  GetParam().spoil(problem);
  const auto result = resolve(Pass::forward, problem);
  ASSERT_FALSE(result.ok());
  expect_fault(result.status(), GetParam().code, GetParam().argument, GetParam().word);
}

const Fault packed_faults[] = {
    {"batch_missing", [](Problem& p) { p.lengths.batch = -1; }, invalid, "lengths.batch", "missing"},
    {"batch_zero_with_rows", [](Problem& p) { p.lengths.batch = 0; }, invalid, "lengths.batch", "64 rows"},
    {"batch_past_limit", [](Problem& p) { p.lengths.batch = INT64_MAX; }, invalid, "lengths.batch", "count"},
    {"query_rank",
     [](Problem& p) {
       p.query = bf16_tensor({1, 64, 8, 64});
     },
     invalid, "query", "packed"},
    {"value_rank",
     [](Problem& p) {
       p.value = bf16_tensor({1, 96, 2, 128});
     },
     invalid, "value", "packed"},
    {"lse_dense",
     [](Problem& p) {
       p.lse = contiguous(Dtype::fp32, cpu(), {3, 8, 40});
     },
     invalid, "lse", "(8, 64)"},
    {"M3_value_total",
     [](Problem& p) {
       p.value = bf16_tensor({97, 2, 128});
     },
     invalid, "value", "97 rows"},
    {"out_sizes",
     [](Problem& p) {
       p.out = bf16_tensor({64, 8, 64});
     },
     invalid, "out", "(64, 8, 128)"},
};
INSTANTIATE_TEST_SUITE_P(Packed, PackedFault, ::testing::ValuesIn(packed_faults), fault_name);

class BackwardFault : public ::testing::TestWithParam<Fault> {};

TEST_P(BackwardFault, IsRefused) {
  Problem problem = backward_problem();
  ASSERT_TRUE(resolve(Pass::backward, problem).ok());
  GetParam().spoil(problem);
  const auto result = resolve(Pass::backward, problem);
  ASSERT_FALSE(result.ok());
  expect_fault(result.status(), GetParam().code, GetParam().argument, GetParam().word);
}

const Fault backward_faults[] = {
    {"out_missing", [](Problem& p) { p.out = {}; }, invalid, "out", "backward"},
    {"lse_missing", [](Problem& p) { p.lse = {}; }, invalid, "lse", "backward"},
    {"grad_out_missing", [](Problem& p) { p.grad_out = {}; }, invalid, "grad_out", "backward"},
    {"grad_query_missing", [](Problem& p) { p.grad_query = {}; }, invalid, "grad_query", "backward"},
    {"grad_key_missing", [](Problem& p) { p.grad_key = {}; }, invalid, "grad_key", "backward"},
    {"grad_value_missing", [](Problem& p) { p.grad_value = {}; }, invalid, "grad_value", "backward"},
    {"grad_out_sizes", [](Problem& p) { p.grad_out = p.query; }, invalid, "grad_out", "must be (2, 32, 8, 128)"},
    {"G5_grad_value_like_key", [](Problem& p) { p.grad_value = p.key; }, invalid, "grad_value", "(2, 48, 2, 128)"},
    {"grad_key_overlaps", [](Problem& p) { p.grad_key.stride[1] = 0; }, invalid, "grad_key", "overlap"},
    {"grad_query_device", [](Problem& p) { p.grad_query.device = cuda(0); }, invalid, "grad_query", "CUDA"},
    {"grad_query_dtype", [](Problem& p) { p.grad_query.dtype = Dtype::fp16; }, invalid, "grad_query", "fp16"},
};
INSTANTIATE_TEST_SUITE_P(Backward, BackwardFault, ::testing::ValuesIn(backward_faults), fault_name);

TEST(Resolve, PassesThatAreNotServed) {
  for (const Pass pass : {Pass::append, Pass::merge}) {
    expect_fault(resolve(pass, dense_problem()).status(), unsupported, "pass", "forward, backward and quantize are");
  }
  expect_fault(resolve(static_cast<Pass>(12), dense_problem()).status(), invalid, "pass", "pass 12");
}

TEST(Resolve, BackendsOfTheCpuRefuseCudaTensors) {
  Problem problem = dense_problem();
  problem.query.device = problem.key.device = problem.value.device = problem.lse.device = cuda(0);
  for (const Backend backend : {Backend::cpu, Backend::emulator}) {
    problem.options.backend = backend;
    expect_fault(resolve(Pass::forward, problem).status(), invalid, "options.backend", "tensors are on CUDA");
  }
  problem.options.backend = Backend::automatic;
  const auto result = resolve(Pass::forward, problem);
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(result->backend, Backend::sm90);
  problem.query.dtype = problem.key.dtype = problem.value.dtype = Dtype::fp32;
  expect_fault(resolve(Pass::forward, problem).status(), unsupported, "query", "fp32");
}

TEST(Resolve, FillsInDefaults) {
  const auto result = resolve(Pass::forward, dense_problem());
  ASSERT_TRUE(result.ok()) << result.status().message;
  const internal::Attention& attention = *result;
  EXPECT_EQ(attention.backend, Backend::cpu);
  EXPECT_EQ(attention.batch, 2);
  EXPECT_EQ(attention.max_query, 32);
  EXPECT_EQ(attention.max_key, 48);
  EXPECT_EQ(attention.total_query, 64);
  EXPECT_EQ(attention.total_key, 96);
  EXPECT_EQ(attention.group(), 4);
  EXPECT_FLOAT_EQ(attention.scale, 0.125f);
  EXPECT_EQ(attention.window.left, Window::unlimited);
  EXPECT_EQ(attention.window.right, Window::unlimited);
  EXPECT_FALSE(attention.diagonal.has_value());
  EXPECT_EQ(attention.out.size[3], 128);
  EXPECT_EQ(attention.out.dtype, Dtype::bf16);
  const internal::Strides out = internal::strides(attention.out);
  EXPECT_EQ(out.batch, 32 * 8 * 128);
  EXPECT_EQ(out.row, 8 * 128);
  EXPECT_EQ(out.head, 128);
  const internal::Strides lse = internal::lse_strides(attention.lse);
  EXPECT_EQ(lse.batch, 8 * 32);
  EXPECT_EQ(lse.row, 1);
  EXPECT_EQ(lse.head, 32);
}

TEST(Resolve, PackedTotalsAndMaxima) {
  Problem problem = packed_problem();
  problem.lengths.max_query = -1;
  problem.lengths.max_key = 1000;  // a bound may be looser than the tensor
  const auto result = resolve(Pass::forward, problem);
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(result->batch, 3);
  EXPECT_EQ(result->max_query, 64);
  EXPECT_EQ(result->max_key, 96);
  const internal::Strides lse = internal::lse_strides(result->lse);
  EXPECT_EQ(lse.batch, 0);
  EXPECT_EQ(lse.row, 1);
  EXPECT_EQ(lse.head, 64);
  EXPECT_EQ(internal::strides(result->query).batch, 0);
}

TEST(Resolve, OneSideMayBePacked) {
  Problem problem = packed_problem();
  problem.key = bf16_tensor({3, 48, 2, 64});
  problem.value = bf16_tensor({3, 48, 2, 128});
  problem.lengths.packed_key = false;
  problem.lengths.max_key = -1;
  problem.lengths.batch = -1;  // the key tells it
  const auto result = resolve(Pass::forward, problem);
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(result->batch, 3);
  EXPECT_EQ(result->total_key, 144);
}

TEST(Resolve, D2_D4_MasksFoldCausalIn) {
  Problem problem = dense_problem();
  problem.mask.causal = true;
  problem.mask.right = 0;
  problem.mask.left = 17;
  auto result = resolve(Pass::forward, problem);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->window.left, 17);
  EXPECT_EQ(result->window.right, 0);
  problem.mask = {false, 0, 0, {}};  // a bound of 0 is a bound
  result = resolve(Pass::forward, problem);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->window.left, 0);
  EXPECT_EQ(result->window.right, 0);
  problem.mask = {false, INT64_MAX, Window::unlimited, -5};
  result = resolve(Pass::forward, problem);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->window.left, Window::unlimited);
  EXPECT_EQ(result->window.right, Window::unlimited);
  EXPECT_EQ(result->diagonal, -5);
}

TEST(Resolve, A1_A2_M9_EmptyIsAccepted) {
  for (const auto& [batch, queries, keys] :
       std::vector<std::array<int64_t, 3>>{{0, 32, 48}, {2, 0, 48}, {2, 32, 0}, {2, 0, 0}, {0, 0, 0}}) {
    Problem problem;
    problem.query = bf16_tensor({batch, queries, 8, 64});
    problem.key = problem.value = bf16_tensor({batch, keys, 2, 64});
    problem.lse = contiguous(Dtype::fp32, cpu(), {batch, 8, queries});
    const auto result = resolve(Pass::forward, problem);
    EXPECT_TRUE(result.ok()) << batch << " " << queries << " " << keys << ": " << result.status().message;
  }
}

TEST(Resolve, F1_F2_F8_LargeSizesDoNotOverflow) {
  Problem problem;
  problem.query = problem.key = problem.value = bf16_tensor({8300, 128, 16, 128});  // 2^31 elements and more
  EXPECT_TRUE(resolve(Pass::forward, problem).ok());
  problem.query = problem.key = problem.value = bf16_tensor({80000, 16, 1, 64});
  EXPECT_TRUE(resolve(Pass::forward, problem).ok());
  problem.query = problem.key = problem.value = bf16_tensor({1, 262144, 48, 128});
  problem.query.stride[1] = problem.key.stride[1] = problem.value.stride[1] = 3 * 6144;
  const auto result = resolve(Pass::forward, problem);
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(internal::strides(result->query).row, 3 * 6144);
}

TEST(Resolve, G1_InputsMayBroadcast) {
  Problem problem = backward_problem();
  problem.key.stride[0] = problem.value.stride[0] = 0;
  problem.query.stride[1] = 0;
  problem.grad_out.stride[0] = problem.grad_out.stride[1] = problem.grad_out.stride[2] = 0;
  EXPECT_TRUE(resolve(Pass::backward, problem).ok());
}

TEST(Resolve, M8_OutMayBeStrided) {
  Problem problem = dense_problem();
  problem.out = bf16_tensor({2, 32, 8, 128});
  problem.out.stride = {8 * 32 * 160, 160, 32 * 160, 1, 0};  // (batch, heads, rows, dim) with padded rows
  problem.lse.stride = {8 * 32, 1, 8, 0, 0};
  const auto result = resolve(Pass::forward, problem);
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(internal::strides(result->out).head, 32 * 160);
  EXPECT_EQ(internal::lse_strides(result->lse).row, 8);
}

TEST(Resolve, StridesOfSizeOneDoNotMatter) {
  Problem problem = dense_problem();
  problem.query = bf16_tensor({1, 32, 8, 64});
  problem.key = bf16_tensor({1, 48, 1, 64});
  problem.value = bf16_tensor({1, 48, 1, 128});
  problem.lse = {};
  problem.key.stride[0] = 12345;
  problem.key.stride[2] = 3;
  problem.out = bf16_tensor({1, 32, 8, 128});
  problem.out.stride[0] = 0;
  const auto result = resolve(Pass::forward, problem);
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(internal::strides(result->key).head, 64);
  EXPECT_EQ(internal::strides(result->out).batch, 32 * 8 * 128);
}

TEST(Resolve, AnyFiniteScale) {
  Problem problem = dense_problem();
  for (const float scale : {0.0f, -2.0f, 1e30f}) {
    problem.scale = scale;
    const auto result = resolve(Pass::forward, problem);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->scale, scale);
  }
}

}  // namespace
}  // namespace tandem::testing
