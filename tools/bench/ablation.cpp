// Plans by the ablation's kernels.
#include "tools/bench/ablation.hpp"

#include <array>

#include "plan/plan.hpp"

#ifdef TANDEM_ABLATION_CUBINS
// The embedded cubins, in the order of the kernels' list.
extern "C" const void* const tandem_ablation_cubins[];
#endif

namespace tandem::tools {
namespace {

using internal::sm90::forward::Variant;
constexpr size_t count = std::size(ablation::kernels);

std::array<Variant, count> make_variants() {
  std::array<Variant, count> variants{};
  for (size_t i = 0; i < count; ++i) {
    variants[i] = {ablation::kernels[i].name, ablation::kernels[i].config};
#ifdef TANDEM_ABLATION_CUBINS
    variants[i].cubin = tandem_ablation_cubins[i];
#endif
  }
  return variants;
}

}  // namespace

std::span<const AblationKernel> ablation_kernels() { return ablation::kernels; }

bool ablation_compiled() {
#ifdef TANDEM_ABLATION_CUBINS
  return true;
#else
  return false;
#endif
}

Result<Plan> ablation_plan(const AblationKernel& kernel, const Problem& problem) {
  static const auto variants = make_variants();  // plans refer to them
  auto attention = internal::resolve(Pass::forward, problem);
  if (!attention) return attention.status();
  attention->variant = &variants[static_cast<size_t>(&kernel - ablation::kernels)];
  return internal::plan(*attention);
}

}  // namespace tandem::tools
