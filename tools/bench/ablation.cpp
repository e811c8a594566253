// The ablation's kernels of a build that has none.
#include "tools/bench/ablation.hpp"

namespace tandem::tools {

std::span<const AblationVariant> ablation_variants() { return {}; }

}  // namespace tandem::tools
