// What every conformance kernel is given.
#pragma once

#include <cstdint>

#include "backends/sm90/ptx/types.hpp"

namespace tandem::conformance {

struct alignas(64) Params {
  ptx::TensorMap map;
  const uint8_t* input;
  uint8_t* output;
  int32_t* flags;        // 64 of them, 0 on entry
  int32_t argument[12];  // what they are is the kernel's affair
};

}  // namespace tandem::conformance
