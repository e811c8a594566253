// Attention on a Hopper GPU with memory and a stream of the program's own. Tandem allocates nothing when it runs and
// only puts work on the stream, so the call stands between the program's own copies like any kernel of its own.
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "tandem/tandem.hpp"

namespace {

bool good(cudaError_t error, const char* what) {
  if (error != cudaSuccess) std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  return error == cudaSuccess;
}

int fail(const char* what, const tandem::Status& status) {
  std::fprintf(stderr, "%s: %s (%s)\n", what, status.message, status.argument);
  return 1;
}

/// Device memory that is freed with the object; `data` is null where there was none to be had.
struct Buffer {
  explicit Buffer(size_t bytes) { good(cudaMalloc(&data, bytes > 0 ? bytes : 1), "cudaMalloc"); }
  ~Buffer() { cudaFree(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data = nullptr;
};

/// bfloat16 is the upper half of a float. (Truncated here, for brevity.)
uint16_t to_bf16(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }

std::vector<uint16_t> random_normal(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) value = to_bf16(normal(generator));
  return values;
}

tandem::Problem describe(int64_t batch, int64_t seqlen, int64_t heads, int64_t head_dim) {
  tandem::Problem problem;
  problem.query = tandem::contiguous(tandem::Dtype::bf16, tandem::cuda(0), {batch, seqlen, heads, head_dim});
  problem.key = problem.value = problem.out = problem.query;
  problem.mask.causal = true;
  return problem;
}

}  // namespace

int main() {
  const int64_t batch = 2, seqlen = 1024, heads = 16, head_dim = 128, count = batch * seqlen * heads * head_dim;
  const tandem::Problem problem = describe(batch, seqlen, heads, head_dim);
  auto plan = tandem::plan(tandem::Pass::forward, problem);
  if (!plan) return fail("plan", plan.status());
  std::printf("%s\n", plan->describe().c_str());

  const size_t bytes = static_cast<size_t>(count) * sizeof(uint16_t);
  const Buffer query(bytes), key(bytes), value(bytes), out(bytes), workspace(plan->workspace_bytes());
  if (!query.data || !key.data || !value.data || !out.data || !workspace.data) return 1;
  cudaStream_t stream = nullptr;
  if (!good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags")) return 1;

  const auto host_query = random_normal(count, 1), host_key = random_normal(count, 2),
             host_value = random_normal(count, 3);
  cudaMemcpyAsync(query.data, host_query.data(), bytes, cudaMemcpyHostToDevice, stream);
  cudaMemcpyAsync(key.data, host_key.data(), bytes, cudaMemcpyHostToDevice, stream);
  cudaMemcpyAsync(value.data, host_value.data(), bytes, cudaMemcpyHostToDevice, stream);

  tandem::Arguments arguments;
  arguments.query = {problem.query, query.data};
  arguments.key = {problem.key, key.data};
  arguments.value = {problem.value, value.data};
  arguments.out = {problem.out, out.data};
  const tandem::Status status = plan->run(arguments, workspace.data, plan->workspace_bytes(), stream);
  if (!status.ok()) return fail("run", status);

  std::vector<uint16_t> host_out(static_cast<size_t>(count));
  cudaMemcpyAsync(host_out.data(), out.data, bytes, cudaMemcpyDeviceToHost, stream);
  if (!good(cudaStreamSynchronize(stream), "the stream")) return 1;
  cudaStreamDestroy(stream);

  // The first query sees the first key alone, so its output is that key's value, bit for bit.
  std::printf("out[0] = 0x%04x, value[0] = 0x%04x\n", host_out[0], host_value[0]);
  return host_out[0] == host_value[0] ? 0 : 1;
}
