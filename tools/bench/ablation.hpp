// The paper's ablation (FA-3 section 4.2, table 2), extended: kernels that leave one idea out, compiled into the
// program and not into the library.
#pragma once

#include <span>

#include "tandem/tandem.hpp"
#include "tools/bench/ablation_variants.hpp"

namespace tandem::tools {

std::span<const AblationKernel> ablation_kernels();

/// False in a build without CUDA: the kernels can be emulated only.
bool ablation_compiled();

/// The forward plan of a problem by a kernel of ablation_kernels(). Options::backend is sm90; or emulator, if
/// TANDEM_EMULATOR_LIBRARY names a library that holds them.
Result<Plan> ablation_plan(const AblationKernel& kernel, const Problem& problem);

}  // namespace tandem::tools
