// cuBLAS, opened at run time: the ceiling that attention is compared with, and the matmuls of standard attention.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tools/memory.hpp"

namespace tandem::tools {

/// A row-major matrix of 16-bit elements; `next` is the distance to the next of a batch, in elements.
struct Matrix {
  void* data;
  int64_t row_stride, next;
};

class Cublas {
 public:
  /// Null, with the reason in `note`, where the library can't be opened.
  static std::unique_ptr<Cublas> open(Memory& memory, std::string* note);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  /// c(m, n) = a(m, k) * b, with float32 accumulation, `batch` times; b is (k, n), or (n, k) where it is transposed.
  void multiply(Dtype dtype, bool transpose_b, int m, int n, int k, Matrix a, Matrix b, Matrix c, int batch) const;

 private:
  struct Functions;
  Cublas(std::unique_ptr<Functions> functions, void* handle);
  std::unique_ptr<Functions> functions_;
  void* handle_;
};

}  // namespace tandem::tools
