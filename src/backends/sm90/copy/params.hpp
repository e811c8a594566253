// Parameters of the copy kernel.
#pragma once

#include <cstdint>

namespace tandem::internal::sm90::copy {

constexpr int threads = 256;

/// Element strides; columns are contiguous on both sides.
struct Layout {
  int64_t batch, row, head;
};

struct Params {
  const uint16_t* source;
  uint16_t* destination;
  int64_t elements, rows, heads, columns;
  Layout from, to;
};

}  // namespace tandem::internal::sm90::copy
