// The arithmetic of a wgmma on the CPU.
//
// 16-bit elements: products are exact in float32 and summed in float32; the hardware's own order and truncation of the
// last bit aren't reproduced. e4m3: the tensor core aligns the 32 products and the accumulator to the largest exponent
// with 13 fraction bits, truncates each, adds exactly, and keeps 14 significant bits of the sum. int8: exact.
#include "backends/emulator/matrix.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>

#include "common/dtypes.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TANDEM_CLONES __attribute__((target_clones("arch=haswell", "default")))
#else
#define TANDEM_CLONES
#endif

namespace tandem::emulator {

namespace {

constexpr int rows_a = 64, max_width = 256;

/// Both operands of an instruction, widened: A by rows, B by k.
template <class Value>
struct Tiles {
  static constexpr int max_k = 32;
  alignas(64) Value a[rows_a][max_k];
  alignas(64) Value b[max_k][max_width];
};

/// One e4m3 number as sign * significand * 2^(exponent - 10), for exponents from 1 on.
struct Small {
  int16_t significand;  // with sign; -8 to -15, 8 to 15, or a subnormal's; `nan` for NaN
  int16_t exponent;
  static constexpr int16_t nan = 99;
};

Small unpack_e4m3(uint8_t bits) {
  const int mantissa = bits & 7, exponent = bits >> 3 & 15;
  if ((bits & 0x7f) == 0x7f) return {Small::nan, 1};
  const int significand = exponent ? 8 + mantissa : mantissa;
  return {static_cast<int16_t>(bits & 0x80 ? -significand : significand),
          static_cast<int16_t>(exponent ? exponent : 1)};
}

template <class Value>
Value widen(ElementKind element, const uint8_t* bytes, int index) {
  if constexpr (std::is_same_v<Value, float>) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * index, 2);
    return element == ElementKind::bf16 ? to_float(bf16{bits}) : to_float(fp16{bits});
  } else if constexpr (std::is_same_v<Value, Small>) {
    return unpack_e4m3(bytes[index]);
  } else {
    return static_cast<int8_t>(bytes[index]);
  }
}

/// Reads an operand from shared memory; `put(row, k, value)` stores an element.
template <class Value, class Put>
void read_operand(ElementKind element, const Operand& operand, SharedBytes shared, Put put) {
  static constexpr auto outside = [] {
    std::array<uint8_t, 16> bytes;
    bytes.fill(std::is_same_v<Value, int> ? 0 : 0x7f);
    return bytes;
  }();
  static constexpr auto nan16 = std::array<uint8_t, 16>{0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f,
                                                        0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f};
  const uint8_t* missing = std::is_same_v<Value, float> ? nan16.data() : outside.data();
  const int count = 16 / operand.element_bytes;
  for_segments(operand, [&](uint32_t address, int row, int k) {
    const size_t offset = static_cast<size_t>(address) - shared_window;
    const uint8_t* bytes = offset + 16 <= shared.bytes ? shared.data + offset : missing;
    for (int i = 0; i < count; ++i) {
      const Value value = widen<Value>(element, bytes, i);
      operand.major == ptx::Major::K ? put(row, k + i, value) : put(row + i, k, value);
    }
  });
}

/// PTX ISA, "Register Fragments": a thread's registers hold rows l / 4 and l / 4 + 8, and, in the second pair, the same
/// rows 16 bytes further along k; each register four bytes from k byte 4 * (l % 4) on.
template <class Value>
void read_fragments(ElementKind element, Fragments registers, int element_bytes, Tiles<Value>& tiles) {
  for (int thread = 0; thread < 128; ++thread) {
    for (int j = 0; j < 4; ++j) {
      uint8_t bytes[4];
      std::memcpy(bytes, &registers[thread][j], 4);
      const int row = thread / 32 * 16 + thread % 32 / 4 + (j & 1) * 8;
      const int k = (thread % 4 * 4 + (j >> 1) * 16) / element_bytes;
      for (int i = 0; i < 4 / element_bytes; ++i) tiles.a[row][k + i] = widen<Value>(element, bytes, i);
    }
  }
}

TANDEM_CLONES void multiply_floats(const Tiles<float>& tiles, int width, bool accumulate, float* c) {
  for (int row = 0; row < rows_a; ++row) {
    float sum[max_width] = {};
    for (int k = 0; k < 16; ++k) {
      const float a = tiles.a[row][k];
      for (int n = 0; n < width; ++n) sum[n] += a * tiles.b[k][n];
    }
    float* out = c + row * width;
    for (int n = 0; n < width; ++n) out[n] = accumulate ? out[n] + sum[n] : sum[n];
  }
}

TANDEM_CLONES void multiply_ints(const Tiles<int>& tiles, int width, bool accumulate, int* c) {
  for (int row = 0; row < rows_a; ++row) {
    int* out = c + row * width;
    for (int n = 0; n < width; ++n) out[n] = accumulate ? out[n] : 0;
    for (int k = 0; k < 32; ++k) {
      const int a = tiles.a[row][k];
      for (int n = 0; n < width; ++n) out[n] += a * tiles.b[k][n];
    }
  }
}

/// Truncates towards zero what lies right of the binary point after `shift` bits.
int align(int magnitude, int shift) { return shift > 30 ? 0 : magnitude >> shift; }

constexpr int fraction_bits = 13;

/// One element of an e4m3 product: the sum of `c` and 32 products as the tensor core forms it.
float sum_truncated(const Small* a, const Small (&b)[32], float c) {
  constexpr int lowest = -200;
  int largest = c != 0 ? std::ilogb(c) : lowest;
  for (int k = 0; k < 32; ++k) {
    if (a[k].significand == Small::nan || b[k].significand == Small::nan) return std::bit_cast<float>(0x7fffffffu);
    if (a[k].significand && b[k].significand) largest = std::max(largest, a[k].exponent + b[k].exponent - 14);
  }
  if (!std::isfinite(c)) return c;
  if (largest == lowest) return 0;
  int sum = static_cast<int>(std::ldexp(c, fraction_bits - largest));  // towards zero
  for (int k = 0; k < 32; ++k) {
    const int product = a[k].significand * b[k].significand;
    const int shift = largest - (a[k].exponent + b[k].exponent - 14);
    // Significands have three fraction bits each, so seven more make thirteen.
    const int aligned = product ? align(std::abs(product) << (fraction_bits - 6), shift) : 0;
    sum += product < 0 ? -aligned : aligned;
  }
  const float exact = std::ldexp(static_cast<float>(sum), largest - fraction_bits);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(exact) & ~((1u << (23 - fraction_bits)) - 1));
}

void multiply_e4m3(const Tiles<Small>& tiles, int width, bool accumulate, float* c) {
  for (int n = 0; n < width; ++n) {
    Small column[32];
    for (int k = 0; k < 32; ++k) column[k] = tiles.b[k][n];
    for (int row = 0; row < rows_a; ++row) {
      float& out = c[row * width + n];
      out = sum_truncated(tiles.a[row], column, accumulate ? out : 0);
    }
  }
}

template <class Value>
const Tiles<Value>& read_tiles(const WgmmaShape& shape, const Operand& a, Fragments registers, const Operand& b,
                               SharedBytes shared) {
  // Too large for a fiber's stack, and for the static thread-local memory of a library.
  thread_local const auto storage = std::make_unique<Tiles<Value>>();
  Tiles<Value>& tiles = *storage;
  if (registers) {
    read_fragments(shape.element, registers, b.element_bytes, tiles);
  } else {
    read_operand<Value>(shape.element, a, shared, [&tiles](int row, int k, Value value) { tiles.a[row][k] = value; });
  }
  read_operand<Value>(shape.element, b, shared, [&tiles](int row, int k, Value value) { tiles.b[k][row] = value; });
  return tiles;
}

}  // namespace

DecodedDescriptor decode(ptx::Descriptor descriptor) {
  constexpr int swizzles[] = {0, 128, 64, 32};
  return {(descriptor.low & 0x3fff) << 4, (descriptor.low >> 16 & 0x3fff) << 4, (descriptor.high & 0x3fff) << 4,
          descriptor.high >> 17 & 7, swizzles[descriptor.high >> 30]};
}

void multiply(const WgmmaShape& shape, const Operand& a, Fragments a_registers, const Operand& b, SharedBytes shared,
              bool accumulate, uint32_t* c) {
  const int width = 2 * shape.accumulators;
  switch (shape.element) {
    case ElementKind::bf16:
    case ElementKind::fp16:
      return multiply_floats(read_tiles<float>(shape, a, a_registers, b, shared), width, accumulate,
                             reinterpret_cast<float*>(c));
    case ElementKind::e4m3:
      return multiply_e4m3(read_tiles<Small>(shape, a, a_registers, b, shared), width, accumulate,
                           reinterpret_cast<float*>(c));
    case ElementKind::int8:
      return multiply_ints(read_tiles<int>(shape, a, a_registers, b, shared), width, accumulate,
                           reinterpret_cast<int*>(c));
  }
}

}  // namespace tandem::emulator
