// How many bytes an element takes: the one table of it.
#pragma once

#include "tandem/tandem.hpp"

namespace tandem {

/// 0 for Dtype::none and for values outside the enumeration.
constexpr int element_bytes(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::fp32:
    case Dtype::int32:
      return 4;
    case Dtype::fp16:
    case Dtype::bf16:
      return 2;
    case Dtype::e4m3:
    case Dtype::int8:
      return 1;
    case Dtype::int64:
      return 8;
    case Dtype::none:
      break;
  }
  return 0;
}

}  // namespace tandem
