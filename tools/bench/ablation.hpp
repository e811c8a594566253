// The paper's ablation (FA-3 section 4.2, table 2), extended: kernels that leave one idea out, compiled into the
// program and not into the library.
#pragma once

#include <span>

#include "tandem/tandem.hpp"

namespace tandem::tools {

struct AblationVariant {
  const char* name;     // "no-ping-pong"
  const char* changes;  // "consumers run without the ping-pong order"
  Result<Plan> (*plan)(const Problem& problem);
};

/// Empty in a build without CUDA.
std::span<const AblationVariant> ablation_variants();

}  // namespace tandem::tools
