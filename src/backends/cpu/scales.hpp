// The scales of 8-bit tensors as the CPU reads them, whatever their granularity.
#pragma once

#include <cstdint>

#include "common/quantized.hpp"
#include "plan/attention.hpp"

namespace tandem::internal::cpu {

struct Scales {
  const float* data = nullptr;
  int64_t batch = 0, head = 0, block = 0;  // strides
  int32_t rows = 0;                        // of a block; 0 where a head has one scale
  bool packed = false;

  Scales() = default;
  Scales(const TensorView& view, const TensorSpec& spec, Granularity granularity, int block_rows, bool packed_rows)
      : data(static_cast<const float*>(view.data)) {
    if (granularity == Granularity::head) {
      batch = spec.stride[0];
      head = spec.stride[1];
    } else if (granularity == Granularity::block) {
      packed = packed_rows;
      rows = block_rows;
      batch = packed ? 0 : spec.stride[0];
      head = spec.stride[packed ? 0 : 1];
      block = spec.stride[packed ? 1 : 2];
    }
  }

  /// That of a row, counted within its sequence, which begins at row `start` of packed ones.
  float at(int64_t sequence, int64_t of_head, int64_t row, int64_t start) const {
    int64_t offset = sequence * batch + of_head * head;
    if (rows > 0) {
      const int32_t first = packed ? first_block(static_cast<int32_t>(start), rows, static_cast<int32_t>(sequence)) : 0;
      offset += (first + row / rows) * block;
    }
    return data[offset];
  }
};

}  // namespace tandem::internal::cpu
