// In which order the tiles of a launch are worked on: shared by host, GPU kernels and emulator.
#pragma once

#include <cstdint>

#include "common/mask.hpp"
#include "common/portable.hpp"

namespace tandem {

/// Which query tile of which head.
struct TilePosition {
  int32_t tile;
  int32_t head;  // counted over all sequences when the tensor is dense
};

/// Heads are taken in sections whose keys and values fit in the L2 cache together. Within a section a causal launch
/// takes the longest tiles (the last rows) of all heads first, so that the last wave is short; otherwise heads one by
/// one.
struct TileOrder {
  int32_t tiles_per_head;
  int32_t heads;
  int32_t section;  // heads of a section
  bool longest_first;

  TANDEM_SHARED_FUNCTION TilePosition at(int32_t index) const {
    if (!longest_first) return {index % tiles_per_head, index / tiles_per_head};
    const int32_t in_section = section * tiles_per_head;
    const int32_t first = index / in_section * section;
    const int32_t width = least(section, heads - first);
    const int32_t within = index % in_section;
    return {tiles_per_head - 1 - within / width, first + within % width};
  }
};

}  // namespace tandem
