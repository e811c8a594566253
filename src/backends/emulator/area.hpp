// A tensor in global memory, as the set of its elements: tensors may interleave in one allocation (query, key and value
// as slices of one array), so that a range of bytes says too little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/emulator/interface.hpp"

namespace tandem::emulator {

class Area {
 public:
  explicit Area(const Buffer& buffer);

  const Buffer& buffer() const { return buffer_; }
  uintptr_t begin() const { return reinterpret_cast<uintptr_t>(buffer_.data); }
  /// Whether all of `bytes` from `address` on belong to elements.
  bool holds(uintptr_t address, size_t bytes) const;

 private:
  struct Dimension {
    uint64_t size, stride;
    uint64_t below;  // from the first to behind the last byte of what the dimension steps over
  };

  uint64_t run_at(size_t dimensions, uint64_t offset) const;

  Buffer buffer_;
  uint64_t run_;                       // bytes that follow each other without a gap
  std::vector<Dimension> dimensions_;  // of runs, by growing strides
};

}  // namespace tandem::emulator
