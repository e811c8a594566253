// What a wgmma computes: descriptors, where the elements of an operand lie in shared memory, fragments, and arithmetic.
// Pure functions of bytes; the bookkeeping of asynchronous execution is in wgmma.cpp.
#pragma once

#include <cstdint>

#include "backends/emulator/runtime.hpp"

namespace tandem::emulator {

/// Shared memory of a block begins here in the shared window, as on the hardware (the system keeps the first KiB).
constexpr uint32_t shared_window = 1024;

/// The swizzle of TMA and of wgmma: within a pattern of eight rows of `bytes`, 16-byte pieces are permuted by address
/// bits (PTX ISA, "Tensor Swizzling Modes").
constexpr uint32_t swizzled(uint32_t address, int bytes) {
  switch (bytes) {
    case 128:
      return address ^ (address >> 3 & 0x70);
    case 64:
      return address ^ (address >> 3 & 0x30);
    case 32:
      return address ^ (address >> 3 & 0x10);
    default:
      return address;
  }
}

/// The fields of a descriptor, in bytes (PTX ISA, "Matrix Descriptor Format").
struct DecodedDescriptor {
  uint32_t start, leading, stride, base_offset;
  int swizzle;  // 0: none
};
DecodedDescriptor decode(ptx::Descriptor descriptor);

/// An operand of one wgmma: `rows` (64 for A, N for B) times 32 bytes of the reduction dimension.
struct Operand {
  DecodedDescriptor at;
  ptx::Major major;
  int rows;
  int element_bytes;
};

/// Calls `visit(address, row, k)` for each 16-byte segment of the operand; `address` is in the shared window. The
/// segment holds consecutive elements along k (K-major) or along the rows (MN-major), from (row, k) on. PTX ISA,
/// "Strides": for K major, `stride` leads from one group of eight rows to the next, and without a swizzle `leading`
/// from one core matrix to the next along k; for MN major, `leading` leads from one swizzle row of elements to the
/// next, and `stride` from one group of eight k to the next.
template <class Visit>
void for_segments(const Operand& operand, Visit visit) {
  const DecodedDescriptor& d = operand.at;
  const uint32_t row_bytes = d.swizzle ? static_cast<uint32_t>(d.swizzle) : 16;
  const int per_segment = 16 / operand.element_bytes;
  if (operand.major == ptx::Major::K) {
    const uint32_t second = d.swizzle ? 16 : d.leading;
    for (int row = 0; row < operand.rows; ++row) {
      const uint32_t at =
          d.start + static_cast<uint32_t>(row / 8) * d.stride + static_cast<uint32_t>(row % 8) * row_bytes;
      visit(swizzled(at, d.swizzle), row, 0);
      visit(swizzled(at + second, d.swizzle), row, per_segment);
    }
    return;
  }
  const int row_elements = static_cast<int>(row_bytes) / operand.element_bytes;
  for (int k = 0; k < 32 / operand.element_bytes; ++k) {
    for (int row = 0; row < operand.rows; row += per_segment) {
      const uint32_t at = d.start + static_cast<uint32_t>(row / row_elements) * d.leading +
                          static_cast<uint32_t>(k / 8) * d.stride + static_cast<uint32_t>(k % 8) * row_bytes +
                          static_cast<uint32_t>(row % row_elements * operand.element_bytes);
      visit(swizzled(at, d.swizzle), row, k);
    }
  }
}

/// Shared memory as a wgmma reads it.
struct SharedBytes {
  const uint8_t* data;
  size_t bytes;
};

/// The rows and columns of accumulator `index` of a thread (0 to 127): PTX ISA, "Register Fragments for wgmma".
constexpr int accumulator_row(int thread, int index) { return thread / 32 * 16 + thread % 32 / 4 + (index & 2) * 4; }
constexpr int accumulator_column(int thread, int index) { return index / 4 * 8 + thread % 4 * 2 + (index & 1); }

/// The A fragments of a warpgroup's 128 threads, or none if A lies in shared memory.
using Fragments = const uint32_t (*)[4];

/// D = A * B + C for one instruction. `c` holds the 64 x N accumulators in row-major order, float or int as the element
/// asks, and receives D. Elements outside of shared memory read as NaN (int8: 0). `exact`: 16-bit sums to the last bit.
void multiply(const WgmmaShape& shape, const Operand& a, Fragments a_registers, const Operand& b, SharedBytes shared,
              bool accumulate, bool exact, uint32_t* c);

}  // namespace tandem::emulator
