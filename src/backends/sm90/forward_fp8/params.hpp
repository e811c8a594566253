// What the 8-bit forward kernel is given at run time: what the 16-bit one is, and the scales.
#pragma once

#include "backends/sm90/forward/params.hpp"
#include "tandem/tandem.hpp"

namespace tandem::internal::sm90::forward_fp8 {

using forward::Rows;
using forward::Tile;

/// Scales of a tensor; strides in elements. Granularities that don't step from block to block have stride 0 there, and
/// so on.
struct Scales {
  const float* data;
  int64_t batch, head, block;
  int32_t rows;         // of a block
  float tile_of_block;  // the part of a block that a tile of the kernel is: 1 over a whole number
};

/// `value` of the base is the map of packed values: (16 keys x 8 channels, channels / 8, group, head, batch).
struct Params : forward::Params {
  Scales query_scale, key_scale, value_scale;
  const float* value_mean;  // null: none was taken out
  int64_t mean_batch_stride, mean_head_stride, mean_channel_stride;
  float inverse_group;     // 1 over the query heads of a key head
  float least_scale;       // of a block's scores: not 0, of the sign of scale_log2
  const float* out_scale;  // of an e4m3 output, else null
  Dtype out_dtype;
  int32_t value_dim;
  int32_t promote_every;  // blocks between promotions; beyond any number of them where there are none
  bool scales_by_block;   // of keys or values
  bool patch_values;      // a tile's memory behind the last key may hold anything
};

/// Scales of one block, through shared memory.
struct alignas(16) BlockScales {
  float key;
  float value_log2;     // of the value's scale over the tile's reference
  float value_inverse;  // reference over scale
  float unused;
};
/// Scales of a tile, those of its first blocks and the value's mean, which are loaded long before the tile begins. The
/// tile's output is in units of its first block's value scale.
template <int head_dim>
struct alignas(16) TileScales {
  static constexpr int blocks = 32;
  float query[forward::max_consumers];  // times the softmax scale
  float keys[blocks], values[blocks];
  float mean[head_dim];
};

}  // namespace tandem::internal::sm90::forward_fp8
