// The kernel that quantises value to groups of 16 keys, transposed, as the tensor cores read them
// (common/quantized.hpp). A thread holds two columns of all keys of a group, so that the transposition takes no
// exchange but one of neighbours.
#pragma once

#include "backends/sm90/quantize/elements.cuh"

namespace tandem::internal::sm90::quantize {

class GroupTile {
 public:
  TANDEM_DEVICE GroupTile(const ValueParams& p, const BlockRows& block, int head) : p_(p), block_(block), head_(head) {
    const int pairs = p.source.columns / 2;
    slot_ = ptx::thread_index() / pairs;
    pair_ = ptx::thread_index() - slot_ * pairs;
    if (p.scaling.mean == nullptr || slot_ >= p.groups_at_once) return;
    const float* mean = p.scaling.mean + block.batch * p.scaling.mean_batch + head * p.scaling.mean_head + 2 * pair_;
    mean_[0] = mean[0];
    mean_[1] = mean[1];
  }

  TANDEM_DEVICE int parts() const { return ceil_divide(p_.source.blocks.tile, p_.groups_at_once * value_group); }

  TANDEM_DEVICE void load(int part) {
    const int group = slot_ + part * p_.groups_at_once;
    key_ = group * value_group;
    exists_ = slot_ < p_.groups_at_once && key_ < p_.source.blocks.tile && key_ < block_.rows;
    const int keys = exists_ ? clamp(block_.used - key_, 0, value_group) : 0;
    const uint16_t* at = row_of(p_.source, block_, keys > 0 ? key_ : 0, head_) + 2 * pair_;
    uint32_t raw[value_group];
#pragma unroll
    for (int k = 0; k < value_group; ++k) raw[k] = k < keys ? load_pair(at + k * p_.source.layout.row) : 0;
    if (p_.source.is_bf16)
      unpack<bf16>(raw);
    else
      unpack<fp16>(raw);
    if (p_.scaling.mean != nullptr) center(keys);
  }

  TANDEM_DEVICE float largest() const {
    float result = 0;
#pragma unroll
    for (int k = 0; k < 2 * value_group; ++k) result = ptx::maximum(result, ptx::magnitude(x_[k % 2][k / 2]));
    if (finite(result)) return result;
    result = 0;
#pragma unroll
    for (int k = 0; k < 2 * value_group; ++k)
      if (finite(x_[k % 2][k / 2])) result = ptx::maximum(result, ptx::magnitude(x_[k % 2][k / 2]));
    return result;
  }

  TANDEM_DEVICE void store(int, float factor) const {
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
    if (!exists_) return;
    int64_t group = (block_.first + key_) / value_group;
    if (p_.packed_sequences) group += first_block(block_.offset, value_group, block_.batch);
    uint8_t* at = p_.target + block_.batch * p_.target_batch + head_ * p_.target_head + group * p_.target_group +
                  (2 * pair_ - (upper ? 1 : 0)) * value_group;
    store_column(at, a);
    store_column(at + 2 * value_group, b);
  }

 private:
  TANDEM_DEVICE uint32_t load_pair(const uint16_t* at) const {
    if (p_.source.wide) return *reinterpret_cast<const uint32_t*>(at);
    return at[0] | static_cast<uint32_t>(at[1]) << 16;
  }

  template <class Element>
  TANDEM_DEVICE void unpack(const uint32_t (&raw)[value_group]) {
#pragma unroll
    for (int k = 0; k < value_group; ++k) ptx::unpack<Element>(raw[k], x_[0][k], x_[1][k]);
  }

  TANDEM_DEVICE void center(int keys) {
#pragma unroll
    for (int k = 0; k < value_group; ++k) {
      x_[0][k] = k < keys ? x_[0][k] - mean_[0] : 0;
      x_[1][k] = k < keys ? x_[1][k] - mean_[1] : 0;
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
  int head_, slot_, pair_;
  int key_ = 0;
  bool exists_ = false;
  float mean_[2]{};
  float x_[2][value_group];  // of each column
};

TANDEM_DEVICE void quantize_groups_of(const ValueParams& p) {
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  const int number = ptx::block_index() / p.source.heads, head = ptx::block_index() - number * p.source.heads;
  const BlockRows block = find_block(p.source, number);
  if (block.batch >= p.source.batch || block.rows <= 0) return;
  GroupTile tile(p, block, head);
  quantize_block(tile, p.scaling, p.source, block, number, head, ptx::dynamic_shared<RowsShared>().largest[0]);
}

}  // namespace tandem::internal::sm90::quantize
