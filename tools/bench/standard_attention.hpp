// The paper's standard attention (FA-1 Algorithm 0, FA-3 section 2.3): scores by one matmul, a softmax over them, the
// output by another, every step through global memory. What exact attention is measured against.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tools/bench/cublas.hpp"
#include "tools/bench/grid.hpp"

namespace tandem::tools {

/// The softmax kernel as a cubin that holds standard_softmax_bf16 and standard_softmax_fp16 (standard_softmax.cu);
/// empty in a build without CUDA.
std::span<const std::byte> standard_softmax_cubin();

class StandardAttention {
 public:
  /// Null, with the reason in `note`, where this build or this machine can't run it.
  static std::unique_ptr<StandardAttention> open(Memory& memory, const Cublas* cublas, std::string* note);
  virtual ~StandardAttention() = default;
  /// Enqueues the forward of a dense (batch, seqlen, heads, head_dim) problem; `scores` has scores_bytes().
  virtual void run(const BenchCase& problem, void* query, void* key, void* value, void* out, void* scores) const = 0;
  static size_t scores_bytes(const BenchCase& problem);
};

}  // namespace tandem::tools
