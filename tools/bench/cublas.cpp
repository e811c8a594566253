// The loader of cuBLAS. Enumerators are spelled as the numbers that its documentation gives them.
#include "tools/bench/cublas.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "tools/failure.hpp"

namespace tandem::tools {

struct Cublas::Functions {
  int (*create)(void**) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*set_stream)(void*, void*) = nullptr;
  int (*multiply)(void*, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a,
                  int type_a, int lda, long long stride_a, const void* b, int type_b, int ldb, long long stride_b,
                  const void* beta, void* c, int type_c, int ldc, long long stride_c, int batch, int compute,
                  int algorithm) = nullptr;
};

std::unique_ptr<Cublas> Cublas::open(Memory& memory, std::string* note) {
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    if ((library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
  }
  if (library == nullptr) {
    *note = "cuBLAS isn't installed (libcublas.so.13 or .12 can't be opened; LD_LIBRARY_PATH says where to look)";
    return nullptr;
  }
  auto functions = std::make_unique<Functions>();
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  void* handle = nullptr;
  if (!find(functions->create, "cublasCreate_v2") || !find(functions->destroy, "cublasDestroy_v2") ||
      !find(functions->set_stream, "cublasSetStream_v2") || !find(functions->multiply, "cublasGemmStridedBatchedEx")) {
    *note = "this cuBLAS lacks a function that is needed";
    return nullptr;
  }
  if (functions->create(&handle) != 0 || functions->set_stream(handle, memory.stream()) != 0) {
    *note = "cuBLAS can't start on this GPU";
    return nullptr;
  }
  return std::unique_ptr<Cublas>(new Cublas(std::move(functions), handle));
}

Cublas::Cublas(std::unique_ptr<Functions> functions, void* handle)
    : functions_(std::move(functions)), handle_(handle) {}
Cublas::~Cublas() { functions_->destroy(handle_); }

void Cublas::multiply(Dtype dtype, bool transpose_b, int m, int n, int k, Matrix a, Matrix b, Matrix c,
                      int batch) const {
  constexpr int no_transpose = 0, transpose = 1, compute_fp32 = 68, default_algorithm = -1;
  const int type = dtype == Dtype::fp16 ? 2 : 14;  // CUDA_R_16F, CUDA_R_16BF
  const float one = 1, zero = 0;
  // cuBLAS is column-major: what it sees of a row-major product is c' = b' a'.
  const int error = functions_->multiply(
      handle_, transpose_b ? transpose : no_transpose, no_transpose, n, m, k, &one, b.data, type,
      static_cast<int>(b.row_stride), b.next, a.data, type, static_cast<int>(a.row_stride), a.next, &zero, c.data, type,
      static_cast<int>(c.row_stride), c.next, batch, compute_fp32, default_algorithm);
  if (error != 0) throw Failure(fmt::format("cuBLAS: cublasGemmStridedBatchedEx gave status {}", error));
}

}  // namespace tandem::tools
