// The kernel that quantises value to groups of 16 keys, transposed, as the tensor cores read them
// (common/quantized.hpp). A thread holds two columns of all keys of a group, so that the transposition takes no
// exchange but one of neighbours.
#pragma once

#include "backends/sm90/quantize/elements.cuh"

namespace tandem::internal::sm90::quantize {

class GroupTile {
 public:
  TANDEM_DEVICE GroupTile(const ValueParams& p, const BlockRows& block) : p_(p), block_(block) {
    const int pairs = p.source.columns / 2;
    slot_ = ptx::thread_index() / pairs;
    pair_ = ptx::thread_index() - slot_ * pairs;
  }

  TANDEM_DEVICE int parts() const { return p_.parts; }

  TANDEM_DEVICE void load(int head, int part) {
    const int key = key_of_part(part), keys = keys_at(key);
    const uint16_t* at = row_of(p_.source, block_, keys > 0 ? key : 0, head) + 2 * pair_;
    uint32_t raw[value_group]{};
    if (p_.source.wide) {
#pragma unroll
      for (int k = 0; k < value_group; ++k)
        if (k < keys) raw[k] = *reinterpret_cast<const uint32_t*>(at + k * p_.source.layout.row);
    } else {
#pragma unroll
      for (int k = 0; k < value_group; ++k)
        if (k < keys) raw[k] = load_pair(at + k * p_.source.layout.row);
    }
    if (p_.source.is_bf16)
      unpack<bf16>(raw);
    else
      unpack<fp16>(raw);
    if (p_.scaling.mean != nullptr) center(head, keys);
  }

  TANDEM_DEVICE float largest() const {
    float result = 0;
#pragma unroll
    for (int k = 0; k < 2 * value_group; ++k) result = ptx::maximum(result, ptx::magnitude(x_[k % 2][k / 2]));
    return ptx::any(!finite(result)) ? largest_finite() : result;
  }

  TANDEM_DEVICE void store(int head, int part, float factor) const {
    uint32_t a[4], b[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      a[w] = packed(x_[0], w, factor);
      b[w] = packed(x_[1], w, factor);
    }
    // Of neighbours' four columns the lower thread stores the first and third, so that each store of a warp fills
    // whole sectors.
    const bool upper = (ptx::thread_index() & 1) != 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const auto other = static_cast<uint32_t>(ptx::shuffle_xor(static_cast<int>(upper ? a[w] : b[w]), 1));
      if (upper)
        a[w] = other;
      else
        b[w] = other;
    }
    const int key = key_of_part(part);
    if (key >= block_.rows) return;
    int64_t group = (block_.first + key) / value_group;
    if (p_.packed_sequences) group += first_block(block_.offset, value_group, block_.batch);
    uint8_t* at = p_.target + block_.batch * p_.target_batch + head * p_.target_head + group * p_.target_group +
                  (2 * pair_ - (upper ? 1 : 0)) * value_group;
    store_column(at, a);
    store_column(at + 2 * value_group, b);
  }

 private:
  TANDEM_DEVICE float largest_finite() const {
    float result = 0;
#pragma unroll
    for (int k = 0; k < 2 * value_group; ++k)
      if (finite(x_[k % 2][k / 2])) result = ptx::maximum(result, ptx::magnitude(x_[k % 2][k / 2]));
    return result;
  }

  TANDEM_DEVICE static uint32_t load_pair(const uint16_t* at) { return at[0] | static_cast<uint32_t>(at[1]) << 16; }

  template <class Element>
  TANDEM_DEVICE void unpack(const uint32_t (&raw)[value_group]) {
#pragma unroll
    for (int k = 0; k < value_group; ++k) ptx::unpack<Element>(raw[k], x_[0][k], x_[1][k]);
  }

  /// The first key of the thread's group in a part of the block; behind all keys where it has none.
  TANDEM_DEVICE int key_of_part(int part) const {
    const int key = (slot_ + part * p_.groups_at_once) * value_group;
    return slot_ < p_.groups_at_once && key < p_.source.blocks.tile ? key : forward::ragged_rows;
  }
  TANDEM_DEVICE int keys_at(int key) const { return clamp(block_.used - key, 0, value_group); }

  TANDEM_DEVICE void center(int head, int keys) {
    if (keys == 0) return;
    const float* mean =
        p_.scaling.mean + block_.batch * p_.scaling.mean_batch + head * p_.scaling.mean_head + 2 * pair_;
    const float low = mean[0], high = mean[1];
#pragma unroll
    for (int k = 0; k < value_group; ++k) {
      x_[0][k] = k < keys ? x_[0][k] - low : 0;
      x_[1][k] = k < keys ? x_[1][k] - high : 0;
    }
  }

  /// Four places of a group: as they lie in a register of the tensor cores' operand.
  TANDEM_DEVICE static uint32_t packed(const float (&x)[value_group], int word, float factor) {
    return ptx::pack_e4m3(x[packed_key(4 * word)] * factor, x[packed_key(4 * word + 1)] * factor,
                          x[packed_key(4 * word + 2)] * factor, x[packed_key(4 * word + 3)] * factor);
  }

  TANDEM_DEVICE void store_column(uint8_t* at, const uint32_t (&words)[4]) const {
    if (p_.target_wide) {
      *reinterpret_cast<Piece*>(at) = {{words[0], words[1], words[2], words[3]}};
      return;
    }
#pragma unroll
    for (int i = 0; i < value_group; ++i) at[i] = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
  }

  const ValueParams& p_;
  const BlockRows& block_;
  int slot_, pair_;
  float x_[2][value_group];  // of each column
};

TANDEM_DEVICE void quantize_groups_of(const ValueParams& p) {
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  const int sections = ceil_divide(p.source.heads, p.heads_at_once), number = ptx::block_index() / sections;
  const int first = (ptx::block_index() - number * sections) * p.heads_at_once;
  const BlockRows block = find_block(p.source, number);
  if (block.batch >= p.source.batch || block.rows <= 0) return;
  GroupTile tile(p, block);
  quantize_heads(tile, p.scaling, p.source, block, number, first, least(first + p.heads_at_once, p.source.heads),
                 ptx::dynamic_shared<RowsShared>());
}

}  // namespace tandem::internal::sm90::quantize
