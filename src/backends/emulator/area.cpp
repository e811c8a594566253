// Which bytes belong to a strided tensor.
#include "backends/emulator/area.hpp"

#include <algorithm>

namespace tandem::emulator {

Area::Area(const Buffer& buffer) : buffer_(buffer), run_(buffer.rank ? buffer.element_bytes : buffer.bytes) {
  for (int i = 0; i < buffer.rank; ++i)
    if (buffer.size[i] > 1 && buffer.stride[i]) dimensions_.push_back({buffer.size[i], buffer.stride[i], 0});
  std::sort(dimensions_.begin(), dimensions_.end(), [](auto& a, auto& b) { return a.stride < b.stride; });
  while (!dimensions_.empty() && dimensions_.front().stride == run_) {
    run_ *= dimensions_.front().size;
    dimensions_.erase(dimensions_.begin());
  }
  uint64_t below = run_;
  for (Dimension& dimension : dimensions_) {
    dimension.below = below;
    below += (dimension.size - 1) * dimension.stride;
  }
}

bool Area::holds(uintptr_t address, size_t bytes) const {
  uint64_t offset = address - begin();
  if (offset >= buffer_.bytes || bytes > buffer_.bytes - offset) return false;
  while (true) {
    const uint64_t run = run_at(dimensions_.size(), offset);
    if (run >= bytes) return true;
    if (!run) return false;
    offset += run;
    bytes -= run;
  }
}

/// The bytes from `offset` to the end of the run that it lies in, 0 if in none, where the innermost `dimensions` count.
/// Where the rows of a dimension interleave with each other, several indices are possible.
uint64_t Area::run_at(size_t dimensions, uint64_t offset) const {
  if (dimensions == 0) return offset < run_ ? run_ - offset : 0;
  const Dimension& outer = dimensions_[dimensions - 1];
  const uint64_t last = std::min(offset / outer.stride, outer.size - 1);
  for (uint64_t i = offset < outer.below ? 0 : (offset - outer.below) / outer.stride + 1; i <= last; ++i)
    if (const uint64_t run = run_at(dimensions - 1, offset - i * outer.stride)) return run;
  return 0;
}

}  // namespace tandem::emulator
