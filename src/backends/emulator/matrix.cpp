// The arithmetic of a wgmma on the CPU.
//
// The tensor core aligns the products and the accumulator to the largest exponent among them, truncates each, adds
// exactly and truncates the sum: 25 bits of fraction for 16-bit elements, 13 for e4m3. For e4m3 that loses much and is
// always reproduced; for 16-bit elements it is the last bit, and reproduced only if asked for: otherwise float32 sums
// are faster.
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

const float hardware_nan = std::bit_cast<float>(0x7fffffffu);

/// Both operands of an instruction, widened: A by rows, B by k.
template <class Value>
struct Tiles {
  static constexpr int max_k = 32;
  alignas(64) Value a[rows_a][max_k];
  alignas(64) Value b[max_k][max_width];
};

/// A number as significand * 2^(exponent - fraction bits of its format), exponents as if all numbers were normal.
struct Unpacked {
  int32_t significand;  // with sign; `special` for NaN and infinity
  int32_t exponent;
  static constexpr int32_t special = 1 << 30;
};

/// A format with `fraction` bits of fraction, `exponent` of exponent, and how many reductions an instruction makes.
struct Format {
  int fraction, exponent, reductions;
  bool has_infinity;
};
constexpr Format format_e4m3{3, 4, 32, false}, format_bf16{7, 8, 16, true}, format_fp16{10, 5, 16, true};

Unpacked unpack(Format format, uint32_t bits) {
  const int fraction = static_cast<int>(bits & ((1u << format.fraction) - 1));
  const int top = (1 << format.exponent) - 1, bias = top >> 1;
  const int exponent = static_cast<int>(bits >> format.fraction) & top;
  const bool all_ones = fraction == (1 << format.fraction) - 1;
  if (exponent == top && (format.has_infinity || all_ones)) return {Unpacked::special, 0};
  const int significand = exponent ? fraction + (1 << format.fraction) : fraction;
  const bool negative = bits >> (format.fraction + format.exponent) & 1;
  return {negative ? -significand : significand, (exponent ? exponent : 1) - bias};
}

template <class Value>
Value widen(ElementKind element, const uint8_t* bytes, int index) {
  if constexpr (std::is_same_v<Value, float>) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * index, 2);
    return element == ElementKind::bf16 ? to_float(bf16{bits}) : to_float(fp16{bits});
  } else if constexpr (std::is_same_v<Value, Unpacked>) {
    if (element == ElementKind::e4m3) return unpack(format_e4m3, bytes[index]);
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * index, 2);
    return unpack(element == ElementKind::bf16 ? format_bf16 : format_fp16, bits);
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
  const uint8_t* missing = operand.element_bytes == 2 ? nan16.data() : outside.data();
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

/// One element of a product as the tensor core forms it: the products and `c` aligned to the largest exponent among
/// them, each truncated to `kept` bits of fraction, added exactly, the sum truncated to the accumulator's significand
/// (float32's; for e4m3 fourteen bits of it).
template <Format format, int kept>
float aligned_sum(const Unpacked* a, const Unpacked* b, float c) {
  constexpr int lowest = -1000, significant = kept < 23 ? kept + 1 : 24;
  int largest = c != 0 ? std::max(std::ilogb(c), -126) : lowest;
  for (int k = 0; k < format.reductions; ++k) {
    if (a[k].significand == Unpacked::special || b[k].significand == Unpacked::special) return hardware_nan;
    if (a[k].significand && b[k].significand) largest = std::max(largest, a[k].exponent + b[k].exponent);
  }
  if (!std::isfinite(c)) return c;
  if (largest == lowest) return 0;
  auto sum = static_cast<int64_t>(std::ldexp(static_cast<double>(c), kept - largest));  // towards zero
  for (int k = 0; k < format.reductions; ++k) {
    const int64_t product = static_cast<int64_t>(a[k].significand) * b[k].significand;
    const int shift = kept - 2 * format.fraction - (largest - (a[k].exponent + b[k].exponent));
    const int64_t magnitude = std::abs(product);
    const int64_t aligned = shift >= 0 ? magnitude << shift : shift < -62 ? 0 : magnitude >> -shift;
    sum += product < 0 ? -aligned : aligned;
  }
  auto magnitude = static_cast<uint64_t>(std::abs(sum));
  const int extra = 64 - std::countl_zero(magnitude) - significant;
  if (extra > 0) magnitude &= ~((uint64_t{1} << extra) - 1);
  const double value = std::ldexp(static_cast<double>(magnitude), largest - kept);
  return static_cast<float>(sum < 0 ? -value : value);
}

template <Format format>
void multiply_exactly(const Tiles<Unpacked>& tiles, int width, bool accumulate, float* c) {
  constexpr int kept = 25;
  for (int n = 0; n < width; ++n) {
    Unpacked column[Tiles<Unpacked>::max_k];
    for (int k = 0; k < format.reductions; ++k) column[k] = tiles.b[k][n];
    for (int row = 0; row < rows_a; ++row) {
      float& out = c[row * width + n];
      out = aligned_sum<format, kept>(tiles.a[row], column, accumulate ? out : 0);
    }
  }
}

/// B of an e4m3 product, by k: significands with sign, and exponents.
struct SmallColumns {
  alignas(64) int32_t significand[32][max_width], exponent[32][max_width];
};

/// The same sums as aligned_sum<format_e4m3, 13>, a row of outputs at a time, so that the compiler can vectorise.
TANDEM_CLONES void multiply_e4m3_row(const Unpacked* a, const SmallColumns& b, int width, bool accumulate, float* c) {
  constexpr int kept = 13, significant = 14, lowest = -1000;
  alignas(64) int32_t largest[max_width], sum[max_width];
  for (int n = 0; n < width; ++n) {
    const uint32_t bits = accumulate ? std::bit_cast<uint32_t>(c[n]) : 0;
    const int32_t exponent = static_cast<int32_t>(bits >> 23 & 0xff);
    largest[n] = bits << 1 == 0 ? lowest : std::max(exponent, 1) - 127;
  }
  for (int k = 0; k < 32; ++k) {
    if (a[k].significand == 0) continue;
    for (int n = 0; n < width; ++n) {
      const int32_t exponent = b.significand[k][n] != 0 ? a[k].exponent + b.exponent[k][n] : lowest;
      largest[n] = std::max(largest[n], exponent);
    }
  }
  for (int n = 0; n < width; ++n) {
    largest[n] = std::max(largest[n], -900);
    const auto scale = std::bit_cast<double>(static_cast<uint64_t>(1023 + kept - largest[n]) << 52);
    sum[n] = accumulate ? static_cast<int32_t>(static_cast<double>(c[n]) * scale) : 0;
  }
  for (int k = 0; k < 32; ++k) {
    if (a[k].significand == 0) continue;
    for (int n = 0; n < width; ++n) {
      const int32_t product = a[k].significand * b.significand[k][n];
      const int32_t shift = std::min(largest[n] - (a[k].exponent + b.exponent[k][n]), 31);
      const int32_t aligned = (std::abs(product) << (kept - 2 * format_e4m3.fraction)) >> std::max(shift, 0);
      sum[n] += product < 0 ? -aligned : aligned;
    }
  }
  for (int n = 0; n < width; ++n) {
    const uint32_t magnitude = static_cast<uint32_t>(std::abs(sum[n]));
    // The exponent of the float nearest to it, minus one where that rounds up, says how many bits are too many.
    const int32_t length = static_cast<int32_t>(std::bit_cast<uint64_t>(static_cast<double>(magnitude)) >> 52) - 1022;
    const int32_t extra = magnitude == 0 ? 0 : std::max(length - significant, 0);
    const auto value = static_cast<double>(magnitude >> extra << extra);
    const double scaled = value * std::bit_cast<double>(static_cast<uint64_t>(1023 + largest[n] - kept) << 52);
    c[n] = static_cast<float>(sum[n] < 0 ? -scaled : scaled);
  }
}

void multiply_e4m3(const Tiles<Unpacked>& tiles, int width, bool accumulate, float* c) {
  thread_local const auto storage = std::make_unique<SmallColumns>();
  bool special[max_width] = {};
  for (int k = 0; k < 32; ++k) {
    for (int n = 0; n < width; ++n) {
      const Unpacked& b = tiles.b[k][n];
      special[n] = special[n] || b.significand == Unpacked::special;
      storage->significand[k][n] = b.significand == Unpacked::special ? 0 : b.significand;
      storage->exponent[k][n] = b.exponent;
    }
  }
  for (int row = 0; row < rows_a; ++row) {
    float* const out = c + row * width;
    bool row_special = false;
    for (int k = 0; k < 32; ++k) row_special = row_special || tiles.a[row][k].significand == Unpacked::special;
    float before[max_width];
    std::copy(out, out + width, before);
    if (!row_special) multiply_e4m3_row(tiles.a[row], *storage, width, accumulate, out);
    for (int n = 0; n < width; ++n) {
      if (row_special || special[n]) {
        out[n] = hardware_nan;
      } else if (accumulate && !std::isfinite(before[n])) {
        out[n] = before[n];
      }
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
              bool accumulate, bool exact, uint32_t* c) {
  const int width = 2 * shape.accumulators;
  auto* floats = reinterpret_cast<float*>(c);
  if (shape.element == ElementKind::int8)
    return multiply_ints(read_tiles<int>(shape, a, a_registers, b, shared), width, accumulate,
                         reinterpret_cast<int*>(c));
  if (shape.element != ElementKind::e4m3 && !exact)
    return multiply_floats(read_tiles<float>(shape, a, a_registers, b, shared), width, accumulate, floats);
  const Tiles<Unpacked>& tiles = read_tiles<Unpacked>(shape, a, a_registers, b, shared);
  switch (shape.element) {
    case ElementKind::bf16:
      return multiply_exactly<format_bf16>(tiles, width, accumulate, floats);
    case ElementKind::fp16:
      return multiply_exactly<format_fp16>(tiles, width, accumulate, floats);
    default:
      return multiply_e4m3(tiles, width, accumulate, floats);
  }
}

}  // namespace tandem::emulator
