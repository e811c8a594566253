// What ptx_host.hpp calls: the emulator as the emulated kernels see it. Each function takes the place of one
// instruction; its return address is the kernel's source line in reports.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/emulator/interface.hpp"

namespace tandem::emulator {

/// Adds a kernel to the library's table when the library is loaded.
struct Registration {
  explicit Registration(const Kernel& kernel);
};

/// An array that an instruction names.
struct Span {
  const void* data;
  size_t bytes;
};

enum class ElementKind { bf16, fp16, e4m3, int8 };

/// The width and operands of a wgmma.
struct WgmmaShape {
  ElementKind element;
  int accumulators;  // per thread: N / 2
  ptx::Major a_major, b_major;
};

// Who am I.
void* shared_memory(size_t bytes);
uint32_t shared_address(const void* pointer);
int thread_index();
int block_threads();
int block_index();
int grid_size();

// Warp collectives.
uint32_t uniform(uint32_t x);
uint32_t shuffle_xor(uint32_t x, int mask);
uint32_t shuffle_up(uint32_t x, int lanes);
uint32_t shuffle(uint32_t x, int lane);
uint32_t ballot(bool predicate);
void sync_warp();
void store_matrices(void* row, const uint32_t (&values)[4], bool transposed);
void load_matrices(const void* row, uint32_t (&values)[4], bool transposed);

// mbarriers, named barriers, fences, registers.
void init(ptx::Barrier& object, int arrivals);
void fence_barrier_init();
void arrive(ptx::Barrier& object);
void arrive_expect(ptx::Barrier& object, int bytes);
bool try_wait(ptx::Barrier& object, int parity);
void wait(ptx::Barrier& object, int parity);
void barrier_sync(int id, int threads);
void barrier_arrive(int id, int threads);
void sync_block();
void fence_proxy_async(bool shared, bool global);
void set_registers(int count, bool up);

// Between kernels and between blocks.
void wait_for_previous_kernel();
void allow_next_kernel();
int load_acquire(const int* flag);
void add_release(int* flag, int value);
int take_ticket(int* counter);
float atomic_add(float* address, float value);

// TMA and bulk copies.
void tma_load(void* destination, const ptx::TensorMap& map, ptx::Barrier& barrier, const int* coordinates, int rank);
void tma_store(const ptx::TensorMap& map, const void* source, const int* coordinates, int rank, bool add);
void bulk_load(void* destination, const void* source, int bytes, ptx::Barrier& barrier);
void bulk_store(void* destination, const void* source, int bytes, bool add);
void bulk_commit();
void bulk_wait(int groups, bool read_only);

// wgmma.
void wgmma_fence(const Span* arrays, int count);
void wgmma(const WgmmaShape& shape, void* accumulators, ptx::Descriptor a, const uint32_t* a_registers,
           ptx::Descriptor b, bool accumulate);
void wgmma_commit();
void wgmma_wait(int groups, const Span* arrays, int count);

// Arithmetic that the timeline counts.
float exp2(float x);

}  // namespace tandem::emulator
