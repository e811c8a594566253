// The ptx interface for the host compiler: the names and signatures of backends/sm90/ptx/*.cuh, forwarded to the
// emulator. Included through ptx/ptx.hpp by the kernels alone, which are compiled with -fsanitize=thread.
#pragma once

#include <bit>
#include <cmath>
#include <iterator>

#include "backends/emulator/runtime.hpp"
#include "backends/sm90/ptx/types.hpp"
#include "common/dtypes.hpp"

#define TANDEM_DEVICE inline __attribute__((always_inline))

/// Registers a kernel with the library that it is linked into. The parameters are the launch's copy, as on the GPU.
#define TANDEM_KERNEL(name, Parameters, threads, Shared, function)                                               \
  static void name##_emulated(const void* parameters) { function(*static_cast<const Parameters*>(parameters)); } \
  static const ::tandem::emulator::Registration name##_registration{{#name, threads, sizeof(Parameters),         \
                                                                     sizeof(Shared), std::data(Shared::parts),   \
                                                                     std::size(Shared::parts), name##_emulated}};

#define TANDEM_SIMPLE_KERNEL(name, Parameters, threads, function)                                                \
  static void name##_emulated(const void* parameters) { function(*static_cast<const Parameters*>(parameters)); } \
  static const ::tandem::emulator::Registration name##_registration{                                             \
      {#name, threads, sizeof(Parameters), 0, nullptr, 0, name##_emulated}};

namespace tandem::ptx {

// ---------------------------------------------------------------------------------------------- barrier.cuh

TANDEM_DEVICE uint32_t shared_address(const void* pointer) { return emulator::shared_address(pointer); }
template <class T>
TANDEM_DEVICE T& dynamic_shared() {
  return *static_cast<T*>(emulator::shared_memory(sizeof(T)));
}
template <class T>
TANDEM_DEVICE T& fixed_shared() {
  return dynamic_shared<T>();
}
TANDEM_DEVICE void init(Barrier& barrier, int arrivals) { emulator::init(barrier, arrivals); }
TANDEM_DEVICE void fence_barrier_init() { emulator::fence_barrier_init(); }
TANDEM_DEVICE void arrive(Barrier& barrier) { emulator::arrive(barrier); }
TANDEM_DEVICE void arrive_expect(Barrier& barrier, int bytes) { emulator::arrive_expect(barrier, bytes); }
TANDEM_DEVICE bool try_wait(Barrier& barrier, int parity) { return emulator::try_wait(barrier, parity); }
TANDEM_DEVICE void wait(Barrier& barrier, int parity) { emulator::wait(barrier, parity); }
TANDEM_DEVICE void barrier_sync(int id, int threads) { emulator::barrier_sync(id, threads); }
TANDEM_DEVICE void barrier_arrive(int id, int threads) { emulator::barrier_arrive(id, threads); }
TANDEM_DEVICE void sync_block() { emulator::sync_block(); }
TANDEM_DEVICE void fence_proxy_async() { emulator::fence_proxy_async(true, false); }
TANDEM_DEVICE void fence_proxy_async_global() { emulator::fence_proxy_async(false, true); }
template <int Registers>
TANDEM_DEVICE void registers_up() {
  emulator::set_registers(Registers, true);
}
template <int Registers>
TANDEM_DEVICE void registers_down() {
  emulator::set_registers(Registers, false);
}
TANDEM_DEVICE void wait_for_previous_kernel() { emulator::wait_for_previous_kernel(); }
TANDEM_DEVICE void allow_next_kernel() { emulator::allow_next_kernel(); }
TANDEM_DEVICE int load_acquire(const int* flag) { return emulator::load_acquire(flag); }
TANDEM_DEVICE void add_release(int* flag, int value) { emulator::add_release(flag, value); }

// ---------------------------------------------------------------------------------------------- warp.cuh

TANDEM_DEVICE int thread_index() { return emulator::thread_index(); }
TANDEM_DEVICE int block_threads() { return emulator::block_threads(); }
TANDEM_DEVICE int block_index() { return emulator::block_index(); }
TANDEM_DEVICE int grid_size() { return emulator::grid_size(); }

TANDEM_DEVICE uint32_t uniform(uint32_t x) { return emulator::uniform(x); }
TANDEM_DEVICE int uniform(int x) { return std::bit_cast<int>(emulator::uniform(std::bit_cast<uint32_t>(x))); }
TANDEM_DEVICE float shuffle_xor(float x, int mask) {
  return std::bit_cast<float>(emulator::shuffle_xor(std::bit_cast<uint32_t>(x), mask));
}
TANDEM_DEVICE int shuffle_xor(int x, int mask) {
  return std::bit_cast<int>(emulator::shuffle_xor(std::bit_cast<uint32_t>(x), mask));
}
TANDEM_DEVICE int shuffle_up(int x, int lanes) {
  return std::bit_cast<int>(emulator::shuffle_up(std::bit_cast<uint32_t>(x), lanes));
}
TANDEM_DEVICE int shuffle(int x, int lane) {
  return std::bit_cast<int>(emulator::shuffle(std::bit_cast<uint32_t>(x), lane));
}
TANDEM_DEVICE float shuffle(float x, int lane) {
  return std::bit_cast<float>(emulator::shuffle(std::bit_cast<uint32_t>(x), lane));
}
TANDEM_DEVICE bool any(bool predicate) { return emulator::ballot(predicate) != 0; }
TANDEM_DEVICE uint32_t ballot(bool predicate) { return emulator::ballot(predicate); }
TANDEM_DEVICE int first_set(uint32_t mask) { return std::countr_zero(mask); }
TANDEM_DEVICE void sync_warp() { emulator::sync_warp(); }
TANDEM_DEVICE int take_ticket(int* counter) { return emulator::take_ticket(counter); }
TANDEM_DEVICE float atomic_add(float* address, float value) { return emulator::atomic_add(address, value); }

TANDEM_DEVICE void store_matrices(void* row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t values[4] = {a, b, c, d};
  emulator::store_matrices(row, values, false);
}
TANDEM_DEVICE void store_matrices_transposed(void* row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t values[4] = {a, b, c, d};
  emulator::store_matrices(row, values, true);
}
TANDEM_DEVICE void load_matrices(const void* row, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  uint32_t values[4];
  emulator::load_matrices(row, values, false);
  a = values[0], b = values[1], c = values[2], d = values[3];
}
TANDEM_DEVICE void load_matrices_transposed(const void* row, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  uint32_t values[4];
  emulator::load_matrices(row, values, true);
  a = values[0], b = values[1], c = values[2], d = values[3];
}

// ---------------------------------------------------------------------------------------------- tma.cuh

TANDEM_DEVICE void prefetch(const TensorMap&) {}
TANDEM_DEVICE void tma_load(void* destination, const TensorMap& map, Barrier& barrier, int c0, int c1, int c2, int c3) {
  const int at[4] = {c0, c1, c2, c3};
  emulator::tma_load(destination, map, barrier, at, 4);
}
TANDEM_DEVICE void tma_load(void* destination, const TensorMap& map, Barrier& barrier, int c0, int c1, int c2, int c3,
                            int c4) {
  const int at[5] = {c0, c1, c2, c3, c4};
  emulator::tma_load(destination, map, barrier, at, 5);
}
TANDEM_DEVICE void tma_store(const TensorMap& map, const void* source, int c0, int c1, int c2, int c3, int c4) {
  const int at[5] = {c0, c1, c2, c3, c4};
  emulator::tma_store(map, source, at, 5, false);
}
TANDEM_DEVICE void tma_reduce_add(const TensorMap& map, const void* source, int c0, int c1, int c2, int c3, int c4) {
  const int at[5] = {c0, c1, c2, c3, c4};
  emulator::tma_store(map, source, at, 5, true);
}
TANDEM_DEVICE void bulk_load(void* destination, const void* source, int bytes, Barrier& barrier) {
  emulator::bulk_load(destination, source, bytes, barrier);
}
TANDEM_DEVICE void bulk_store(void* destination, const void* source, int bytes) {
  emulator::bulk_store(destination, source, bytes, false);
}
TANDEM_DEVICE void bulk_reduce_add(float* destination, const float* source, int bytes) {
  emulator::bulk_store(destination, source, bytes, true);
}
TANDEM_DEVICE void bulk_commit() { emulator::bulk_commit(); }
template <int N>
TANDEM_DEVICE void bulk_wait_read() {
  emulator::bulk_wait(N, true);
}
template <int N>
TANDEM_DEVICE void bulk_wait() {
  emulator::bulk_wait(N, false);
}

// ---------------------------------------------------------------------------------------------- wgmma.cuh

template <Swizzle swizzle>
TANDEM_DEVICE Descriptor matrix(const void* data, uint32_t leading, uint32_t stride) {
  constexpr uint32_t mode = descriptor_mode(swizzle);
  return {((shared_address(data) & 0x3ffffu) >> 4) | (leading >> 4) << 16, (stride >> 4) | mode << 30};
}
TANDEM_DEVICE Descriptor advance(Descriptor descriptor, uint32_t bytes) {
  descriptor.low += bytes >> 4;
  return descriptor;
}
TANDEM_DEVICE Descriptor uniform(Descriptor descriptor) { return {uniform(descriptor.low), descriptor.high}; }
TANDEM_DEVICE uint64_t bits(Descriptor descriptor) {
  return static_cast<uint64_t>(descriptor.high) << 32 | descriptor.low;
}

template <class... Arrays>
TANDEM_DEVICE void wgmma_fence(Arrays&... arrays) {
  const emulator::Span spans[] = {{&arrays, sizeof(arrays)}..., {nullptr, 0}};
  emulator::wgmma_fence(spans, sizeof...(Arrays));
}
TANDEM_DEVICE void wgmma_commit() { emulator::wgmma_commit(); }
template <int N, class... Arrays>
TANDEM_DEVICE void wgmma_wait(Arrays&... arrays) {
  const emulator::Span spans[] = {{&arrays, sizeof(arrays)}..., {nullptr, 0}};
  emulator::wgmma_wait(N, spans, sizeof...(Arrays));
}

template <class Element, class Accumulator>
constexpr emulator::ElementKind element_kind() {
  constexpr bool integer = std::is_same_v<Element, int8_t>;
  static_assert(std::is_same_v<Accumulator, int> == integer, "int8 accumulates in int, the others in float");
  if (std::is_same_v<Element, bf16>) return emulator::ElementKind::bf16;
  if (std::is_same_v<Element, fp16>) return emulator::ElementKind::fp16;
  return integer ? emulator::ElementKind::int8 : emulator::ElementKind::e4m3;
}

template <class Element, Major a_major = Major::K, Major b_major = Major::K, class Accumulator, int R>
TANDEM_DEVICE void wgmma(Accumulator (&d)[R], Descriptor a, Descriptor b, bool accumulate) {
  static_assert(R % 8 == 0 && R <= 128, "N is a multiple of 16 up to 256");
  static_assert(sizeof(Element) == 2 || (a_major == Major::K && b_major == Major::K),
                "8-bit operands are K-major only");
  emulator::wgmma({element_kind<Element, Accumulator>(), R, a_major, b_major}, d, a, nullptr, b, accumulate);
}
template <class Element, Major b_major = Major::K, class Accumulator, int R>
TANDEM_DEVICE void wgmma(Accumulator (&d)[R], const uint32_t (&a)[4], Descriptor b, bool accumulate) {
  static_assert(R % 8 == 0 && R <= 128, "N is a multiple of 16 up to 256");
  static_assert(sizeof(Element) == 2 || b_major == Major::K, "8-bit operands are K-major only");
  emulator::wgmma({element_kind<Element, Accumulator>(), R, Major::K, b_major}, d, {}, a, b, accumulate);
}

// ---------------------------------------------------------------------------------------------- math.cuh

TANDEM_DEVICE float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
TANDEM_DEVICE float exp2(float x) { return emulator::exp2(x); }
TANDEM_DEVICE float log2(float x) { return ::log2f(flush(x)); }
TANDEM_DEVICE float reciprocal(float x) { return flush(1.0f / flush(x)); }
TANDEM_DEVICE float tanh(float x) { return ::tanhf(x); }
TANDEM_DEVICE float multiply_add(float a, float b, float c) {
  const float sum = ::fmaf(a, b, c);
  return std::isnan(sum) ? std::bit_cast<float>(0x7fffffffu) : sum;  // the hardware's one NaN
}
TANDEM_DEVICE float maximum(float a, float b) { return ::fmaxf(a, b); }
TANDEM_DEVICE float minimum(float a, float b) { return ::fminf(a, b); }

TANDEM_DEVICE uint32_t pack_e4m3(float a, float b, float c, float d) {
  return to_e4m3(a).bits | static_cast<uint32_t>(to_e4m3(b).bits) << 8 | static_cast<uint32_t>(to_e4m3(c).bits) << 16 |
         static_cast<uint32_t>(to_e4m3(d).bits) << 24;
}
TANDEM_DEVICE float as_float(int bits) { return std::bit_cast<float>(bits); }
TANDEM_DEVICE float as_float(float x) { return x; }
TANDEM_DEVICE int as_int(float x) { return std::bit_cast<int>(x); }
TANDEM_DEVICE uint32_t low_bits(int count) { return count < 32 ? (1u << count) - 1 : ~0u; }
TANDEM_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i)
    result |= static_cast<uint32_t>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return result;
}

template <class Element>
TANDEM_DEVICE uint32_t pack(float low, float high) {
  return from_float<Element>(low).bits | static_cast<uint32_t>(from_float<Element>(high).bits) << 16;
}
template <class Element>
TANDEM_DEVICE void unpack(uint32_t packed, float& low, float& high) {
  low = to_float(Element{static_cast<uint16_t>(packed)});
  high = to_float(Element{static_cast<uint16_t>(packed >> 16)});
}
TANDEM_DEVICE int round_int8(float x) {
  return std::isnan(x) ? 0 : static_cast<int>(::nearbyintf(::fminf(::fmaxf(x, -128.0f), 127.0f)));
}
TANDEM_DEVICE float magnitude(float x) { return std::fabs(x); }

}  // namespace tandem::ptx
