// The pieces that the CPU's forward and backward kernels are made of: conversion and packing of rows, one matrix
// product on registers, the exponential. Compiled once per instruction set: included inside Highway's foreach_target.
#if defined(TANDEM_CPU_KERNELS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_CPU_KERNELS_INL
#undef TANDEM_CPU_KERNELS_INL
#else
#define TANDEM_CPU_KERNELS_INL
#endif

#include <algorithm>
#include <cstring>

#include "backends/cpu/kernels.hpp"
#include "common/dtypes.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::internal::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Float4 = hn::CappedTag<float, 4>;
using Vector = hn::Vec<Floats>;
constexpr int64_t lanes = hn::MaxLanes(Floats());

// A micro-kernel keeps row_group x vector_group accumulators in registers: 24 of 32 with AVX-512 and NEON, 12 of 16
// otherwise, which leaves room for the operands.
constexpr int row_group = 6;
constexpr int vector_group = (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON) ? 4 : 2;

enum class Start { zero, add };  // what a product is added to: nothing, or the old content (scaled by row, if asked)

/// c[r][:] = start + sum over k of a[r * row_step + k * k_step] * b[k][:] for Rows rows and Vectors vectors of columns.
template <int Rows, int Vectors>
HWY_INLINE void multiply_block(const float* HWY_RESTRICT a, int64_t row_step, int64_t k_step,
                               const float* HWY_RESTRICT b, int64_t b_stride, int64_t depth, float* HWY_RESTRICT c,
                               int64_t c_stride, Start start, const float* HWY_RESTRICT factors) {
  const Floats d;
  Vector sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      if (start == Start::zero) {
        sum[r][v] = hn::Zero(d);
      } else {
        sum[r][v] = hn::Load(d, c + r * c_stride + v * lanes);
        if (factors != nullptr) sum[r][v] = hn::Mul(sum[r][v], hn::Set(d, factors[r]));
      }
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vector column[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) column[v] = hn::Load(d, b + k * b_stride + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Vector scalar = hn::Set(d, a[r * row_step + k * k_step]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] = hn::MulAdd(scalar, column[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) hn::Store(sum[r][v], d, c + r * c_stride + v * lanes);
  }
}

/// Operands of a product c = start + a b. `a` is rows x depth with any steps, b and c are row-major and vector-aligned.
struct Product {
  const float* a;
  int64_t row_step, k_step;
  const float* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  Start start = Start::zero;
  const float* factors = nullptr;  // of the old rows
};

template <int Vectors>
HWY_INLINE void multiply_panel(const Product& p, int64_t rows, int64_t column, int64_t depth) {
  int64_t r = 0;
  const auto block = [&]<int Rows>() HWY_ATTR {
    multiply_block<Rows, Vectors>(p.a + r * p.row_step, p.row_step, p.k_step, p.b + column, p.b_stride, depth,
                                  p.c + r * p.c_stride + column, p.c_stride, p.start,
                                  p.factors == nullptr ? nullptr : p.factors + r);
    r += Rows;
  };
  while (r + row_group <= rows) block.template operator()<row_group>();
  while (r + 2 <= rows) block.template operator()<2>();
  while (r < rows) block.template operator()<1>();
}

/// The columns of a score tile that hold so many keys: whole chunks of the widest micro-kernel.
HWY_INLINE int64_t whole_chunks(int64_t keys) {
  constexpr int64_t chunk = vector_group * lanes;
  return (keys + chunk - 1) / chunk * chunk;
}

/// Panels of columns are outermost, so that a panel of b stays in the first-level cache for all rows.
HWY_INLINE void multiply(const Product& p, int64_t rows, int64_t columns, int64_t depth) {
  int64_t column = 0;
  for (; column + vector_group * lanes <= columns; column += vector_group * lanes) {
    multiply_panel<vector_group>(p, rows, column, depth);
  }
  for (; column < columns; column += lanes) multiply_panel<1>(p, rows, column, depth);
}

/// 2^x for x of at most 127 with a relative error of about 1e-7: a minimax polynomial of the fraction in [-1/2, 1/2]
/// (its constant term is 1, so that 2^0 is exactly 1), times a power of two made from bits. Below the normal numbers it
/// is 0; NaN stays.
HWY_INLINE Vector exp2(Vector x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const Vector shift = hn::Set(d, 0x1.8p23f);  // adding it rounds to an integer, kept in the low bits
  const Vector shifted = hn::Add(x, shift);
  const Vector f = hn::Sub(x, hn::Sub(shifted, shift));
  Vector p = hn::Set(d, 0.000153458121587f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.00133999312095f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.00961848895652f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.05550328777f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.240226468906f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.693147205737f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const auto exponent = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 127 << 23));
  const Vector result = hn::Mul(p, hn::BitCast(d, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), result);
}

/// Numbers from 0 to 448 rounded to those of e4m3, to nearest even; NaN stays.
HWY_INLINE Vector round_e4m3(Vector x) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> du;
  const Vector shift = hn::Set(d, 0x1p14f);  // adding it rounds to a multiple of 2^-9, the step of the smallest
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1));
  const auto rounded = hn::And(hn::Add(hn::Add(bits, odd), hn::Set(du, 0x7ffff)), hn::Set(du, 0xfff00000u));
  const Vector small = hn::Sub(hn::Add(x, shift), shift);
  const Vector result = hn::IfThenElse(hn::Lt(x, hn::Set(d, 0x1p-6f)), small, hn::BitCast(d, rounded));
  return hn::IfThenElse(hn::Eq(x, x), result, x);
}

/// Converts a row to float, times `sign`, and fills up to padded(columns) with zeros.
HWY_INLINE void load_row(Dtype dtype, const void* data, int64_t offset, int64_t columns, float sign, float* to) {
  const Floats d;
  const Vector factor = hn::Set(d, sign);
  int64_t c = 0;
  if (dtype == Dtype::fp32) {
    const float* from = static_cast<const float*>(data) + offset;
    for (; c + lanes <= columns; c += lanes) hn::Store(hn::Mul(hn::LoadU(d, from + c), factor), d, to + c);
    for (; c < columns; ++c) to[c] = from[c] * sign;
  } else if (dtype == Dtype::bf16) {
    const hn::Rebind<hwy::bfloat16_t, Floats> half;
    const auto* from = static_cast<const hwy::bfloat16_t*>(data) + offset;
    for (; c + lanes <= columns; c += lanes) {
      hn::Store(hn::Mul(hn::PromoteTo(d, hn::LoadU(half, from + c)), factor), d, to + c);
    }
    const bf16* rest = static_cast<const bf16*>(data) + offset;
    for (; c < columns; ++c) to[c] = to_float(rest[c]) * sign;
  } else if (dtype == Dtype::e4m3) {
    const auto* from = static_cast<const uint8_t*>(data) + offset;
    for (; c < columns; ++c) to[c] = e4m3_table.number[from[c]] * sign;
  } else if (dtype == Dtype::int8) {
    const auto* from = static_cast<const int8_t*>(data) + offset;
    for (; c < columns; ++c) to[c] = static_cast<float>(from[c]) * sign;
  } else {
    const hn::Rebind<hwy::float16_t, Floats> half;
    const auto* from = static_cast<const hwy::float16_t*>(data) + offset;
    for (; c + lanes <= columns; c += lanes) {
      hn::Store(hn::Mul(hn::PromoteTo(d, hn::LoadU(half, from + c)), factor), d, to + c);
    }
    const fp16* rest = static_cast<const fp16*>(data) + offset;
    for (; c < columns; ++c) to[c] = to_float(rest[c]) * sign;
  }
  for (; c < padded(columns); ++c) to[c] = 0;
}

/// Stores a row of floats times `factor` in the tensor's type.
HWY_INLINE void store_row(Dtype dtype, void* data, int64_t offset, int64_t columns, float factor, const float* from) {
  if (dtype == Dtype::fp32) {
    float* to = static_cast<float*>(data) + offset;
    for (int64_t c = 0; c < columns; ++c) to[c] = from[c] * factor;
  } else if (dtype == Dtype::bf16) {
    bf16* to = static_cast<bf16*>(data) + offset;
    for (int64_t c = 0; c < columns; ++c) to[c] = to_bf16(from[c] * factor);
  } else if (dtype == Dtype::e4m3) {
    e4m3* to = static_cast<e4m3*>(data) + offset;
    for (int64_t c = 0; c < columns; ++c) to[c] = to_e4m3(from[c] * factor);
  } else {
    fp16* to = static_cast<fp16*>(data) + offset;
    for (int64_t c = 0; c < columns; ++c) to[c] = to_fp16(from[c] * factor);
  }
}

/// Loads rows [begin, end) of a block as columns: to[c * key_block + row]. Rows of the block up to `columns` that are
/// not loaded become zeros. `staging` holds four rows.
template <class Offset>
HWY_INLINE void load_transposed(Dtype dtype, const void* data, const Offset& offset, int64_t dim, int64_t begin,
                                int64_t end, int64_t columns, float* staging, float* to) {
  const int64_t width = padded(dim);
  for (int64_t row = 0; row < columns; row += 4) {
    for (int64_t r = 0; r < 4; ++r) {
      if (row + r >= begin && row + r < end) {
        load_row(dtype, data, offset(row + r), dim, 1.0f, staging + r * width);
      } else {
        std::memset(staging + r * width, 0, sizeof(float) * static_cast<size_t>(width));
      }
    }
#if HWY_TARGET == HWY_SCALAR
    for (int64_t c = 0; c < dim; ++c) {
      for (int64_t r = 0; r < 4; ++r) to[c * key_block + row + r] = staging[r * width + c];
    }
#else
    const Float4 d;
    for (int64_t c = 0; c < dim; c += 4) {
      const auto a0 = hn::Load(d, staging + c), a1 = hn::Load(d, staging + width + c);
      const auto a2 = hn::Load(d, staging + 2 * width + c), a3 = hn::Load(d, staging + 3 * width + c);
      const auto low02 = hn::InterleaveLower(d, a0, a2), high02 = hn::InterleaveUpper(d, a0, a2);
      const auto low13 = hn::InterleaveLower(d, a1, a3), high13 = hn::InterleaveUpper(d, a1, a3);
      float* at = to + c * key_block + row;
      hn::Store(hn::InterleaveLower(d, low02, low13), d, at);
      hn::Store(hn::InterleaveUpper(d, low02, low13), d, at + key_block);
      hn::Store(hn::InterleaveLower(d, high02, high13), d, at + 2 * key_block);
      hn::Store(hn::InterleaveUpper(d, high02, high13), d, at + 3 * key_block);
    }
#endif
  }
}

/// One block's keys [begin, end) relative to its first key, of those that a query tile sees, and the rows that see
/// some.
struct Block {
  int64_t first, begin, end;
  Range rows;
};

/// Calls visit(block) for each block of keys that some row of the tile sees. Only such keys are read: whatever lies
/// beyond never reaches a result.
template <class Visit>
HWY_INLINE void for_each_block(const QueryTile& tile, const Visit& visit) {
  const Range seen = tile.seen();
  for (int64_t first = seen.begin / key_block * key_block; first < seen.end; first += key_block) {
    const int64_t begin = std::max<int64_t>(seen.begin - first, 0), end = std::min(seen.end - first, key_block);
    const Block block{first, begin, end, tile.rows_that_see(first + begin, first + end)};
    if (block.rows.begin < block.rows.end) visit(block);
  }
}

}  // namespace tandem::internal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
