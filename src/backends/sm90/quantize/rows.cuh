// The kernel that quantises rows to rows: query and key, with rotary embedding, random signs and the Hadamard matrix
// (FA-3 section 3.3) on the way, and value as rows. Memory-bound: a row is read once and stays in registers.
#pragma once

#include "backends/sm90/quantize/elements.cuh"

namespace tandem::internal::sm90::quantize {

/// Rows of one head in registers. `lanes` neighbouring threads share a row: thread l of them has its pieces l, l +
/// lanes, l + 2 lanes, l + 3 lanes, so that loads are coalesced, and a column's number in binary is (piece of the
/// thread, thread, element).
class RowTile {
 public:
  TANDEM_DEVICE RowTile(const RowsParams& p, const BlockRows& block) : p_(p), block_(block) {}

  TANDEM_DEVICE int parts() const { return p_.parts; }

  TANDEM_DEVICE void load(int head, int part) {
    const int row = row_of_part(part);
    const bool used = row < block_.used;
    const uint16_t* at = row_of(p_.source, block_, used ? row : 0, head) + column(0);
    const int held = used ? pieces() : 0, step = column(1) - column(0);
    Piece raw[pieces_of_thread]{};
    if (p_.source.wide) {
#pragma unroll
      for (int j = 0; j < pieces_of_thread; ++j)
        if (j < held) raw[j] = *reinterpret_cast<const Piece*>(at + j * step);
    } else {
#pragma unroll
      for (int j = 0; j < pieces_of_thread; ++j)
        if (j < held) raw[j] = load_by_elements(at + j * step);
    }
    const bool rotates = p_.rotation.dims > 0;
    if (p_.hadamard > 1 && !rotates && used) flip(raw);  // other rows stay 0, not -0
    if (p_.source.is_bf16)
      unpack<bf16>(raw);
    else
      unpack<fp16>(raw);
    if (p_.scaling.mean != nullptr && used) center(head);
    if (rotates && used) rotate(row_of(p_.source, block_, row, head), row);
    if (p_.hadamard == 1) return;
    if (rotates && used) flip();
    hadamard();
  }

  /// Infinite elements, which are stored as the largest number, don't make the others' scale useless.
  TANDEM_DEVICE float largest() const {
    float result = 0;
#pragma unroll
    for (int k = 0; k < 32; ++k) result = ptx::maximum(result, ptx::magnitude(x_[k / 8][k % 8]));
    return ptx::any(!finite(result)) ? largest_finite() : result;
  }

  TANDEM_DEVICE void store(int head, int part, float factor) const {
    const int row = row_of_part(part), held = row < block_.rows ? pieces() : 0, step = column(1) - column(0);
    const Layout& l = p_.target_layout;
    uint8_t* at = p_.target + block_.batch * l.batch +
                  static_cast<int64_t>(block_.offset + block_.first + (held > 0 ? row : 0)) * l.row + head * l.head +
                  column(0);
#pragma unroll
    for (int j = 0; j < pieces_of_thread; j += 2) {
      Eight a{rounded(x_[j], factor), rounded(x_[j] + 4, factor)};
      Eight b{rounded(x_[j + 1], factor), rounded(x_[j + 1] + 4, factor)};
      if (p_.target_pairs) {
        store_pair(at + j * step, step, j + (ptx::thread_index() & 1) < held, a, b);
        continue;
      }
      if (j < held) store_eight(at + j * step, a);
      if (j + 1 < held) store_eight(at + (j + 1) * step, b);
    }
  }

 private:
  TANDEM_DEVICE float largest_finite() const {
    float result = 0;
#pragma unroll
    for (int k = 0; k < 32; ++k)
      if (finite(x_[k / 8][k % 8])) result = ptx::maximum(result, ptx::magnitude(x_[k / 8][k % 8]));
    return result;
  }

  struct alignas(8) Eight {
    uint32_t low, high;
  };

  template <class Element>
  TANDEM_DEVICE void unpack(const Piece (&raw)[pieces_of_thread]) {
#pragma unroll
    for (int j = 0; j < pieces_of_thread; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) ptx::unpack<Element>(raw[j].words[i], x_[j][2 * i], x_[j][2 * i + 1]);
  }

  TANDEM_DEVICE int lane() const { return ptx::thread_index() & ((1 << p_.lane_bits) - 1); }
  TANDEM_DEVICE int number(int j) const { return lane() + (j << p_.lane_bits); }
  TANDEM_DEVICE int column(int j) const { return piece * number(j); }
  /// How many pieces of a row the thread has.
  TANDEM_DEVICE int pieces() const {
    return (p_.source.columns - column(0) + column(1) - column(0) - 1) / piece >> p_.lane_bits;
  }

  /// The thread's row in a part of the block; behind all rows where it has none.
  TANDEM_DEVICE int row_of_part(int part) const {
    const int slot = ptx::thread_index() >> p_.lane_bits, row = slot + part * p_.rows_at_once;
    return slot < p_.rows_at_once && row < p_.source.blocks.tile ? row : forward::ragged_rows;
  }

  TANDEM_DEVICE uint32_t rounded(const float* x, float factor) const {
    if (!p_.integer) return ptx::pack_e4m3(x[0] * factor, x[1] * factor, x[2] * factor, x[3] * factor);
    uint32_t packed = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int element = greatest(ptx::round_int8(x[i] * factor), -127);
      packed |= static_cast<uint32_t>(element & 0xff) << 8 * i;
    }
    return packed;
  }

  TANDEM_DEVICE void store_eight(uint8_t* at, const Eight& x) const {
    if (p_.target_wide) {
      *reinterpret_cast<Eight*>(at) = x;
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      at[i] = static_cast<uint8_t>(x.low >> 8 * i);
      at[4 + i] = static_cast<uint8_t>(x.high >> 8 * i);
    }
  }

  /// Neighbouring threads have neighbouring pieces: the lower one stores the first of both, the upper one the second,
  /// so that whole sectors are written.
  TANDEM_DEVICE void store_pair(uint8_t* at, int step, bool exists, const Eight& a, const Eight& b) const {
    const bool upper = (ptx::thread_index() & 1) != 0;
    const Eight given = upper ? a : b;
    const Eight taken{static_cast<uint32_t>(ptx::shuffle_xor(static_cast<int>(given.low), 1)),
                      static_cast<uint32_t>(ptx::shuffle_xor(static_cast<int>(given.high), 1))};
    if (!exists) return;
    if (upper)
      *reinterpret_cast<Piece*>(at + step - piece) = {{taken.low, taken.high, b.low, b.high}};
    else
      *reinterpret_cast<Piece*>(at) = {{a.low, a.high, taken.low, taken.high}};
  }

  TANDEM_DEVICE void center(int head) {
    const float* mean = p_.scaling.mean + block_.batch * p_.scaling.mean_batch + head * p_.scaling.mean_head;
#pragma unroll
    for (int j = 0; j < pieces_of_thread; ++j) {
      if (column(j) >= p_.source.columns) continue;
#pragma unroll
      for (int i = 0; i < piece; ++i) x_[j][i] -= mean[column(j) + i];
    }
  }

  // ------------------------------------------------------------------------------------- rotary embedding

  TANDEM_DEVICE static void turn(float& a, float& b, float cos, float sin) {
    const float first = ptx::multiply_add(a, cos, -(b * sin));
    b = ptx::multiply_add(b, cos, a * sin);
    a = first;
  }

  TANDEM_DEVICE void rotate(const uint16_t* at, int row) {
    const Rotation& r = p_.rotation;
    int position = block_.first + row;
    if (r.position != nullptr) position += clamp(r.position[block_.batch], 0, forward::ragged_rows);
    position = clamp(position, 0, r.positions - 1);
    const float *cos = r.cos + position * r.cos_row, *sin = r.sin + position * r.sin_row;
    if (!r.whole) {
      rotate_any(at, cos, sin);
    } else if (r.interleaved) {
#pragma unroll
      for (int j = 0; j < pieces_of_thread; ++j) {
        if (column(j) >= r.dims) continue;
        const backward::Quad c = quad(cos + column(j) / 2), s = quad(sin + column(j) / 2);
        turn(x_[j][0], x_[j][1], c.x, s.x);
        turn(x_[j][2], x_[j][3], c.y, s.y);
        turn(x_[j][4], x_[j][5], c.z, s.z);
        turn(x_[j][6], x_[j][7], c.w, s.w);
      }
    } else if (r.dims == 4 * piece << p_.lane_bits) {
      turn_pieces(x_[0], x_[2], cos + column(0), sin + column(0));
      turn_pieces(x_[1], x_[3], cos + column(1), sin + column(1));
    } else {
      turn_pieces(x_[0], x_[1], cos + column(0), sin + column(0));
    }
  }

  TANDEM_DEVICE static backward::Quad quad(const float* at) { return *reinterpret_cast<const backward::Quad*>(at); }

  TANDEM_DEVICE static void turn_pieces(float (&a)[piece], float (&b)[piece], const float* cos, const float* sin) {
#pragma unroll
    for (int half = 0; half < piece; half += 4) {
      const backward::Quad c = quad(cos + half), s = quad(sin + half);
      turn(a[half], b[half], c.x, s.x);
      turn(a[half + 1], b[half + 1], c.y, s.y);
      turn(a[half + 2], b[half + 2], c.z, s.z);
      turn(a[half + 3], b[half + 3], c.w, s.w);
    }
  }

  /// Any number of dims: a column's partner is read from the row once more, since another thread may have it.
  TANDEM_DEVICE void rotate_any(const uint16_t* at, const float* cos, const float* sin) {
    const Rotation& r = p_.rotation;
#pragma unroll
    for (int j = 0; j < pieces_of_thread; ++j) {
#pragma unroll
      for (int i = 0; i < piece; ++i) {
        const int c = column(j) + i;
        if (c >= r.dims) continue;
        const int half = r.dims / 2;
        const bool second = r.interleaved ? (c & 1) != 0 : c >= half;
        const int angle = r.interleaved ? c / 2 : second ? c - half : c;
        const int partner = r.interleaved ? c ^ 1 : second ? c - half : c + half;
        float other, unused;
        if (p_.source.is_bf16)
          ptx::unpack<bf16>(at[partner], other, unused);
        else
          ptx::unpack<fp16>(at[partner], other, unused);
        float mine = x_[j][i];
        if (second)
          turn(other, mine, cos[angle], sin[angle]);
        else
          turn(mine, other, cos[angle], sin[angle]);
        x_[j][i] = mine;
      }
    }
  }

  // ------------------------------------------------------------------------------------- signs and Hadamard matrix

  /// Before and after the elements are unpacked. Bits 15 - i and 31 - i of a piece's word are the signs of elements 2i
  /// and 2i + 1: shifted by i they are where those of a pair of 16-bit elements are.
  TANDEM_DEVICE void flip(Piece (&raw)[pieces_of_thread]) const {
#pragma unroll
    for (int j = 0; j < pieces_of_thread; ++j) {
      const uint32_t signs = p_.signs[number(j) & 31];
#pragma unroll
      for (int i = 0; i < 4; ++i) raw[j].words[i] ^= signs << i & 0x80008000u;
    }
  }
  TANDEM_DEVICE void flip() {
#pragma unroll
    for (int j = 0; j < pieces_of_thread; ++j) {
      const uint32_t signs = p_.signs[number(j) & 31];
#pragma unroll
      for (int i = 0; i < piece; ++i) {
        const uint32_t sign = signs << (i / 2 + (i % 2 == 0 ? 16 : 0)) & 0x80000000u;
        x_[j][i] = std::bit_cast<float>(std::bit_cast<uint32_t>(x_[j][i]) ^ sign);
      }
    }
  }

  TANDEM_DEVICE static void add_and_subtract(float& a, float& b) {
    const float sum = a + b;
    b = a - b;
    a = sum;
  }

  /// Butterflies from the lowest bit of the column's number up: of the element, of the thread, of the piece.
  TANDEM_DEVICE void hadamard() {
#pragma unroll
    for (int distance = 1; distance < piece; distance *= 2)
#pragma unroll
      for (int k = 0; k < 32; ++k)
        if ((k & distance) == 0) add_and_subtract(x_[k / 8][k % 8], x_[k / 8][k % 8 + distance]);
#pragma unroll 1
    for (int distance = 1; distance * piece < least(piece << p_.lane_bits, p_.hadamard); distance *= 2) {
      const float mine = (lane() & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
      for (int k = 0; k < 32; ++k) {
        float& x = x_[k / 8][k % 8];
        x = ptx::multiply_add(x, mine, ptx::shuffle_xor(x, distance));
      }
    }
    if (piece << p_.lane_bits >= p_.hadamard) return;
#pragma unroll
    for (int i = 0; i < piece; ++i) {
      add_and_subtract(x_[0][i], x_[1][i]);
      add_and_subtract(x_[2][i], x_[3][i]);
    }
    if (2 * piece << p_.lane_bits >= p_.hadamard) return;
#pragma unroll
    for (int i = 0; i < piece; ++i) {
      add_and_subtract(x_[0][i], x_[2][i]);
      add_and_subtract(x_[1][i], x_[3][i]);
    }
  }

  const RowsParams& p_;
  const BlockRows& block_;
  float x_[pieces_of_thread][piece];
};

TANDEM_DEVICE void quantize_rows_of(const RowsParams& p) {
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  const int sections = ceil_divide(p.source.heads, p.heads_at_once);
  const int number = ptx::block_index() / sections;
  const int first = (ptx::block_index() - number * sections) * p.heads_at_once;
  const int last = least(first + p.heads_at_once, p.source.heads);
  BlockRows block = find_block(p.source, number);
  const bool empty = block.batch >= p.source.batch || block.rows <= 0;
  if (empty && p.scaling.search != Search::none) return;
  if (empty) block.rows = block.used = 0;
  RowsShared& shared = ptx::dynamic_shared<RowsShared>();
  RowTile tile(p, block);
  quantize_heads(tile, p.scaling, p.source, block, number, first, last, shared);
}

}  // namespace tandem::internal::sm90::quantize
