// The Tensor Memory Accelerator: tile loads, stores and reductions, and bulk copies of contiguous bytes. One thread
// issues each. Loads complete on an mbarrier; stores and reductions in bulk groups of the issuing thread.
#pragma once

#include "backends/sm90/ptx/barrier.cuh"

namespace tandem::ptx {

TANDEM_DEVICE void prefetch(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map)); }

/// Loads the box at the given coordinates (innermost first). Out-of-bounds elements become 0 and count as bytes.
TANDEM_DEVICE void tma_load(void* destination, const TensorMap& map, Barrier& barrier, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(destination)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
TANDEM_DEVICE void tma_load(void* destination, const TensorMap& map, Barrier& barrier, int c0, int c1, int c2, int c3,
                            int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(shared_address(destination)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

/// Stores a box; parts that are out of bounds are dropped.
TANDEM_DEVICE void tma_store(const TensorMap& map, const void* source, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
               "r"(shared_address(source)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}
/// Adds a box of float32 to global memory.
TANDEM_DEVICE void tma_reduce_add(const TensorMap& map, const void* source, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
      "r"(shared_address(source)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

/// Contiguous bytes, both ends aligned to 16, a multiple of 16 long.
TANDEM_DEVICE void bulk_load(void* destination, const void* source, int bytes, Barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(destination)),
               "l"(source), "r"(bytes), "r"(shared_address(&barrier))
               : "memory");
}
TANDEM_DEVICE void bulk_store(void* destination, const void* source, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination),
               "r"(shared_address(source)), "r"(bytes)
               : "memory");
}
/// Adds float32 values to global memory, element by element.
TANDEM_DEVICE void bulk_reduce_add(float* destination, const float* source, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(destination),
               "r"(shared_address(source)), "r"(bytes)
               : "memory");
}

TANDEM_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until the sources of all but the last N groups have been read: the shared memory may be written again.
template <int N>
TANDEM_DEVICE void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
/// Until all but the last N groups are done, their writes visible to this thread.
template <int N>
TANDEM_DEVICE void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace tandem::ptx
