// Jobs and the fixture of the GPU's tests.
#include "gpu/support.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tools/inputs.hpp"

namespace tandem::testing {

Mask causal_mask(bool causal) {
  Mask mask;
  mask.causal = causal;
  return mask;
}

Mask window_mask(int64_t left, int64_t right) {
  Mask mask;
  mask.left = left;
  mask.right = right;
  return mask;
}

Array quick_array(std::vector<int64_t> shape, Dtype dtype, uint64_t seed) {
  constexpr int64_t period = 1'000'003;  // a prime
  Array array{dtype, std::move(shape), {}};
  const int64_t count = tools::count_elements(array), drawn = std::min(count, period);
  array.bytes = tools::random_array({drawn}, dtype, seed).bytes;
  const size_t block = array.bytes.size(), all = static_cast<size_t>(count) * tools::size_of(dtype);
  array.bytes.resize(all);
  for (size_t at = block; at < all; at += block)
    std::memcpy(array.bytes.data() + at, array.bytes.data(), std::min(block, all - at));
  return array;
}

Array constant_array(const std::vector<int64_t>& shape, Dtype dtype, float value) {
  const std::vector<float> all(static_cast<size_t>(tools::count_elements(shape, "constant")), value);
  return tools::array_of(all, shape, dtype);
}

Tensor int32_tensor(const std::vector<int32_t>& values) {
  Array array{Dtype::int32, {static_cast<int64_t>(values.size())}, Bytes(values.size() * sizeof(int32_t))};
  std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return tools::tensor_of(array);
}

Job make_job(const Shape& s) {
  const auto tensor_shape = [&](const std::vector<int32_t>& cumulative, int64_t length, int64_t heads, int64_t dim) {
    return cumulative.empty() ? std::vector<int64_t>{s.batch, length, heads, dim}
                              : std::vector<int64_t>{cumulative.back(), heads, dim};
  };
  const int64_t value_dim = s.value_dim != 0 ? s.value_dim : s.head_dim;
  Job job;
  job.problem.mask = s.mask;
  const auto input = [&](const std::vector<int64_t>& shape, uint64_t stream) {
    return tools::tensor_of(quick_array(shape, s.dtype, s.seed * 8 + stream));
  };
  job.query = input(tensor_shape(s.cu_query, s.queries, s.query_heads, s.head_dim), 1);
  job.key = input(tensor_shape(s.cu_key, s.keys, s.key_heads, s.head_dim), 2);
  job.value = input(tensor_shape(s.cu_key, s.keys, s.key_heads, value_dim), 3);
  job.out = tools::poisoned(s.dtype, tensor_shape(s.cu_query, s.queries, s.query_heads, value_dim));
  job.lse = tools::poisoned(Dtype::fp32, s.cu_query.empty() ? std::vector<int64_t>{s.batch, s.query_heads, s.queries}
                                                            : std::vector<int64_t>{s.query_heads, s.cu_query.back()});
  if (!s.cu_query.empty()) job.cu_query = int32_tensor(s.cu_query);
  if (!s.cu_key.empty()) job.cu_key = int32_tensor(s.cu_key);
  if (!s.used_query.empty()) job.used_query = int32_tensor(s.used_query);
  if (!s.used_key.empty()) job.used_key = int32_tensor(s.used_key);
  return job;
}

Tensor view_of(const Array& whole, const std::vector<int64_t>& size, const std::vector<int64_t>& stride,
               int64_t offset) {
  Tensor tensor = tools::tensor_of(whole);
  tensor.spec.rank = static_cast<int>(size.size());
  std::copy(size.begin(), size.end(), tensor.spec.size.begin());
  std::copy(stride.begin(), stride.end(), tensor.spec.stride.begin());
  const size_t bytes = static_cast<size_t>(offset) * tools::size_of(whole.dtype);
  tensor.first += bytes;
  tensor.spec.alignment = 16;
  while (bytes % static_cast<size_t>(tensor.spec.alignment) != 0) tensor.spec.alignment /= 2;
  return tensor;
}

std::vector<float> values(const Tensor& tensor) { return tools::floats(tools::array_of(tensor), "tensor"); }

bool same(const Tensor& a, const Tensor& b) { return tools::array_of(a).bytes == tools::array_of(b).bytes; }

Bytes rows(const Tensor& tensor, int64_t first, int64_t last) {
  const Array array = tools::array_of(tensor);
  const size_t row = array.bytes.size() / static_cast<size_t>(array.shape[0]);
  const auto begin = array.bytes.begin();
  return {begin + static_cast<long>(static_cast<size_t>(first) * row),
          begin + static_cast<long>(static_cast<size_t>(last) * row)};
}

void set_rows(Tensor& tensor, int64_t batch, int64_t first, int64_t last, float value) {
  const auto& spec = tensor.spec;
  const auto count = static_cast<size_t>((last - first) * spec.stride[1]);
  const Bytes fill = constant_array({static_cast<int64_t>(count)}, spec.dtype, value).bytes;
  const auto at = static_cast<size_t>(batch * spec.stride[0] + first * spec.stride[1]) * tools::size_of(spec.dtype);
  std::copy(fill.begin(), fill.end(), tensor.bytes.begin() + static_cast<long>(tensor.first + at));
}

Backend backend() {
  const char* other = std::getenv("TANDEM_GPU_TESTS_ON");
  return other != nullptr && std::string_view(other) == "cpu" ? Backend::cpu : Backend::sm90;
}

void Gpu::SetUp() {
  if (const Status status = available(backend()); !status.ok()) GTEST_SKIP() << status.message;
  memory_ = tools::memory_for(backend());
}

void GpuOnly::SetUp() {
  if (backend() != Backend::sm90) GTEST_SKIP() << "this test calls the CUDA driver";
  Gpu::SetUp();
}

Result<Plan> Gpu::plan_of(const Job& job, Options options) const {
  Problem problem = tools::problem_of(job, memory_->device());
  options.backend = backend();
  problem.options = options;
  return plan(job.pass, problem);
}

void Gpu::run(Job& job, const Options& options) {
  auto planned = plan_of(job, options);
  ASSERT_TRUE(planned.ok()) << planned.status().argument << ": " << planned.status().message;
  ASSERT_EQ(planned->backend(), backend());
  tools::Execution execution(job, *planned, *memory_);
  const Status status = execution.run();
  ASSERT_TRUE(status.ok()) << status.argument << ": " << status.message;
  execution.fetch(job);
  for (const tools::Role& role : tools::roles()) {
    const Tensor& tensor = job.*role.tensor;
    const bool checked = tensor.present() && role.written(job.pass);
    EXPECT_TRUE(!checked || tools::guards_intact(tensor)) << "memory outside " << role.name << " was written to";
  }
}

void Gpu::expect_right(const Job& job) {
  const auto verdict = tools::judge(job, tools::affordable_rows(job, 1e8));
  EXPECT_TRUE(verdict.ok) << verdict.text;
}

}  // namespace tandem::testing
