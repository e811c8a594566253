// Who am I, votes, shuffles, atomics, and the matrix loads and stores of a warp.
#pragma once

#include "backends/sm90/ptx/barrier.cuh"

namespace tandem::ptx {

TANDEM_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
TANDEM_DEVICE int block_threads() { return static_cast<int>(blockDim.x); }
TANDEM_DEVICE int block_index() { return static_cast<int>(blockIdx.x); }
TANDEM_DEVICE int grid_size() { return static_cast<int>(gridDim.x); }

/// The value, which all lanes must agree on, in a uniform register (redux writes one; shuffles don't).
TANDEM_DEVICE uint32_t uniform(uint32_t x) {
  uint32_t result;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(x));
  return result;
}
TANDEM_DEVICE int uniform(int x) {
  int result;
  asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(x));
  return result;
}
TANDEM_DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
TANDEM_DEVICE int shuffle_xor(int x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
TANDEM_DEVICE int shuffle_up(int x, int lanes) { return __shfl_up_sync(0xffffffffu, x, lanes); }
TANDEM_DEVICE int shuffle(int x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
TANDEM_DEVICE float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
TANDEM_DEVICE bool any(bool predicate) { return __any_sync(0xffffffffu, predicate); }
TANDEM_DEVICE uint32_t ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }
TANDEM_DEVICE void sync_warp() { __syncwarp(); }
/// The lowest set bit's number; the mask is not 0.
TANDEM_DEVICE int first_set(uint32_t mask) { return __ffs(static_cast<int>(mask)) - 1; }

/// Adds one and returns the value before; called by lane 0 alone. The addend is written as lane + 1, since ptxas would
/// aggregate a constant one over the warp, with a shuffle that waits for the answer at once.
TANDEM_DEVICE int take_ticket(int* counter) {
  int before;
  asm volatile(
      "{\n.reg .u32 one;\nmov.u32 one, %%laneid;\nadd.u32 one, one, 1;\natom.global.relaxed.gpu.add.s32 %0, [%1], "
      "one;\n}\n"
      : "=r"(before)
      : "l"(counter)
      : "memory");
  return before;
}
TANDEM_DEVICE float atomic_add(float* address, float value) { return atomicAdd(address, value); }

/// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
TANDEM_DEVICE void store_matrices(void* row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
TANDEM_DEVICE void store_matrices_transposed(void* row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
TANDEM_DEVICE void load_matrices(const void* row, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(shared_address(row))
               : "memory");
}
TANDEM_DEVICE void load_matrices_transposed(const void* row, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(shared_address(row))
               : "memory");
}

}  // namespace tandem::ptx
