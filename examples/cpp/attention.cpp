// Attention on the CPU with Tandem's C++ interface: describe the problem, make a plan, run it as often as wanted.
#include <cstdint>
#include <cstdio>
#include <new>
#include <random>
#include <vector>

#include "tandem/tandem.hpp"

namespace {

int fail(const char* what, const tandem::Status& status) {
  std::fprintf(stderr, "%s: %s (%s)\n", what, status.message, status.argument);
  return 1;
}

std::vector<float> random_normal(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

/// Memory of any content, 256-byte aligned, for one run at a time.
struct Workspace {
  explicit Workspace(size_t bytes) : data(::operator new(bytes, alignment)) {}
  ~Workspace() { ::operator delete(data, alignment); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  static constexpr std::align_val_t alignment{256};
  void* data;
};

}  // namespace

int main() {
  // Eight query heads share two key heads (grouped-query attention); each query sees the keys up to its own position.
  const int64_t batch = 1, seqlen = 512, query_heads = 8, key_heads = 2, head_dim = 64;
  auto query = random_normal(batch * seqlen * query_heads * head_dim, 1);
  auto key = random_normal(batch * seqlen * key_heads * head_dim, 2);
  auto value = random_normal(batch * seqlen * key_heads * head_dim, 3);
  std::vector<float> out(query.size());
  std::vector<float> lse(static_cast<size_t>(batch * query_heads * seqlen));

  tandem::Problem problem;
  const auto fp32 = tandem::Dtype::fp32;
  problem.query = tandem::contiguous(fp32, tandem::cpu(), {batch, seqlen, query_heads, head_dim});
  problem.key = tandem::contiguous(fp32, tandem::cpu(), {batch, seqlen, key_heads, head_dim});
  problem.value = problem.key;
  problem.out = problem.query;
  problem.lse = tandem::contiguous(fp32, tandem::cpu(), {batch, query_heads, seqlen});
  problem.mask.causal = true;

  auto plan = tandem::plan(tandem::Pass::forward, problem);
  if (!plan) return fail("plan", plan.status());
  std::printf("%s\n", plan->describe().c_str());

  tandem::Arguments arguments;
  arguments.query = {problem.query, query.data()};
  arguments.key = {problem.key, key.data()};
  arguments.value = {problem.value, value.data()};
  arguments.out = {problem.out, out.data()};
  arguments.lse = {problem.lse, lse.data()};
  const size_t bytes = plan->workspace_bytes();
  const Workspace workspace(bytes);
  const tandem::Status status = plan->run(arguments, workspace.data, bytes);
  if (!status.ok()) return fail("run", status);

  // The first query sees the first key alone, so its output is that key's value.
  std::printf("out[0] = %.6f, value[0] = %.6f, lse of the last query = %.4f\n", out[0], value[0], lse.back());
  return out[0] == value[0] ? 0 : 1;
}
