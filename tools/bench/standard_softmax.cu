// The softmax of standard attention (FA-1 Algorithm 0, line 2): reads a row of scores from global memory and writes its
// probabilities back. One block a row, three passes over it: the maximum, the sum, the result. Row blockIdx.x of matrix
// blockIdx.y; columns past the diagonal are masked where `causal` is set.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace {

constexpr int warps = 8;

template <class Combine>
__device__ float reduce(float value, float neutral, Combine combine) {
  __shared__ float parts[warps];
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(~0u, value, offset));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = neutral;
  for (int warp = 0; warp < warps; ++warp) value = combine(value, parts[warp]);
  __syncthreads();
  return value;
}

template <class T>
__device__ void softmax_row(T* scores, int columns, float scale, int causal) {
  T* row = scores + (static_cast<size_t>(blockIdx.y) * columns + blockIdx.x) * columns;
  const int visible = causal ? static_cast<int>(blockIdx.x) + 1 : columns;
  const float scale_log2 = scale * 1.4426950408889634f;
  float largest = -INFINITY;
  for (int c = threadIdx.x; c < visible; c += blockDim.x) largest = fmaxf(largest, static_cast<float>(row[c]));
  largest = reduce(largest, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for (int c = threadIdx.x; c < visible; c += blockDim.x) {
    sum += exp2f((static_cast<float>(row[c]) - largest) * scale_log2);
  }
  sum = reduce(sum, 0, [](float a, float b) { return a + b; });
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    row[c] = c < visible ? T(exp2f((static_cast<float>(row[c]) - largest) * scale_log2) / sum) : T(0.0f);
  }
}

}  // namespace

extern "C" __global__ void standard_softmax_bf16(__nv_bfloat16* scores, int columns, float scale, int causal) {
  softmax_row(scores, columns, scale, causal);
}

extern "C" __global__ void standard_softmax_fp16(__half* scores, int columns, float scale, int causal) {
  softmax_row(scores, columns, scale, causal);
}
