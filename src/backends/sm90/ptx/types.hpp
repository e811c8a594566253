// The types of the ptx interface: the same size and place on the GPU and in the emulator.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::ptx {

/// An mbarrier object in shared memory. Passed by reference; its content belongs to the hardware (or the emulator).
struct alignas(8) Barrier {
  uint64_t state;
};

/// A TMA descriptor: a CUtensorMap on the GPU, the emulator's own description in the same bytes on the host.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

/// A wgmma matrix descriptor with the hardware's bit layout (PTX ISA, "Matrix Descriptor Format").
struct Descriptor {
  uint32_t low, high;
};

/// Which dimension of a wgmma operand is contiguous in shared memory: its reduction dimension (K) or the other one
/// (MN).
enum class Major { K, MN };

/// Bytes of a shared-memory row that the swizzle permutes in 16-byte pieces; the same for TMA and wgmma. none: wgmma
/// operands are core matrices of eight rows of 16 bytes.
enum class Swizzle : int { none = 0, bytes32 = 32, bytes64 = 64, bytes128 = 128 };

/// The widest swizzle whose rows divide a row of so many bytes.
constexpr Swizzle widest_swizzle(int bytes) {
  return bytes % 128 == 0 ? Swizzle::bytes128 : bytes % 64 == 0 ? Swizzle::bytes64 : Swizzle::bytes32;
}

/// The swizzle's number in a matrix descriptor.
constexpr uint32_t descriptor_mode(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::bytes128:
      return 1;
    case Swizzle::bytes64:
      return 2;
    case Swizzle::bytes32:
      return 3;
    default:
      return 0;
  }
}

/// An array of a shared-memory struct: what the emulator's reports and printed plans call it.
struct Part {
  const char* name;
  size_t offset;
  size_t element_bytes;
};

}  // namespace tandem::ptx
