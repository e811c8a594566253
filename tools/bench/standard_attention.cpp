// Standard attention: two cuBLAS products with our softmax kernel between.
#include "tools/bench/standard_attention.hpp"

#include <cmath>

#include "tools/cuda_memory.hpp"
#include "tools/failure.hpp"

#if defined(TANDEM_STANDARD_SOFTMAX)
extern "C" const std::byte tandem_standard_softmax_begin[], tandem_standard_softmax_end[];
std::span<const std::byte> tandem::tools::standard_softmax_cubin() {
  return {tandem_standard_softmax_begin, tandem_standard_softmax_end};
}
#else
std::span<const std::byte> tandem::tools::standard_softmax_cubin() { return {}; }
#endif

namespace tandem::tools {
namespace {

using LaunchKernel = int (*)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** arguments,
                             void** extra);
using LoadModule = int (*)(void** module, const void* image);
using GetFunction = int (*)(void** function, void* module, const char* name);

class GpuStandardAttention final : public StandardAttention {
 public:
  GpuStandardAttention(Memory& memory, const Cublas& cublas, void* bf16, void* fp16, LaunchKernel launch)
      : memory_(memory), cublas_(cublas), bf16_(bf16), fp16_(fp16), launch_(launch) {}

  void run(const BenchCase& p, void* query, void* key, void* value, void* out, void* scores) const override {
    constexpr int64_t element = 2;
    const int n = static_cast<int>(p.seqlen), d = static_cast<int>(p.head_dim), heads = static_cast<int>(p.heads);
    const int64_t row = p.heads * p.head_dim, square = p.seqlen * p.seqlen;
    const auto at = [&](void* tensor, int64_t b) {
      return Matrix{static_cast<std::byte*>(tensor) + b * p.seqlen * row * element, row, p.head_dim};
    };
    const auto scores_of = [&](int64_t b) {
      return Matrix{static_cast<std::byte*>(scores) + b * p.heads * square * element, p.seqlen, square};
    };
    for (int64_t b = 0; b < p.batch; ++b) {
      cublas_.multiply(p.dtype, true, n, n, d, at(query, b), at(key, b), scores_of(b), heads);
    }
    softmax(p, scores);
    for (int64_t b = 0; b < p.batch; ++b) {
      cublas_.multiply(p.dtype, false, n, d, n, scores_of(b), at(value, b), at(out, b), heads);
    }
  }

 private:
  /// In place; one block a row.
  void softmax(const BenchCase& p, void* scores) const {
    int columns = static_cast<int>(p.seqlen), causal = p.causal ? 1 : 0;
    float scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
    void* arguments[] = {&scores, &columns, &scale, &causal};
    constexpr unsigned threads = 256;
    const int error =
        launch_(p.dtype == Dtype::fp16 ? fp16_ : bf16_, static_cast<unsigned>(p.seqlen),
                static_cast<unsigned>(p.batch * p.heads), 1, threads, 1, 1, 0, memory_.stream(), arguments, nullptr);
    if (error != 0) throw Failure("the softmax kernel of standard attention can't be launched");
  }

  Memory& memory_;
  const Cublas& cublas_;
  void *bf16_, *fp16_;
  LaunchKernel launch_;
};

}  // namespace

std::unique_ptr<StandardAttention> StandardAttention::open(Memory& memory, const Cublas* cublas, std::string* note) {
  const auto cubin = standard_softmax_cubin();
  if (cublas == nullptr) {
    *note = "standard attention needs cuBLAS";
    return nullptr;
  }
  if (cubin.empty()) {
    *note = "standard attention's softmax kernel isn't in this build";
    return nullptr;
  }
  const auto load = reinterpret_cast<LoadModule>(cuda_symbol("cuModuleLoadData"));
  const auto get = reinterpret_cast<GetFunction>(cuda_symbol("cuModuleGetFunction"));
  const auto launch = reinterpret_cast<LaunchKernel>(cuda_symbol("cuLaunchKernel"));
  void *module = nullptr, *bf16 = nullptr, *fp16 = nullptr;
  if (load == nullptr || get == nullptr || launch == nullptr || load(&module, cubin.data()) != 0 ||
      get(&bf16, module, "standard_softmax_bf16") != 0 || get(&fp16, module, "standard_softmax_fp16") != 0) {
    *note = "standard attention's softmax kernel can't be loaded on this GPU";
    return nullptr;
  }
  return std::make_unique<GpuStandardAttention>(memory, *cublas, bf16, fp16, launch);
}

size_t StandardAttention::scores_bytes(const BenchCase& p) {
  return static_cast<size_t>(p.batch * p.heads) * static_cast<size_t>(p.seqlen) * static_cast<size_t>(p.seqlen) * 2;
}

}  // namespace tandem::tools
