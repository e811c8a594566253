// The way from a problem to a plan: resolve it, then let the backend prepare it. The one place that knows which
// backends this build holds.
#include "plan/plan.hpp"

#include "backends/backends.hpp"
#include "common/status.hpp"

namespace tandem {
namespace internal {
namespace {

struct Entry {
  Status (*available)() noexcept;
  ExecutableResult (*prepare)(const Attention&) noexcept;
};

/// Both null for a backend that isn't in this build.
Entry entry(Backend backend) {
  switch (backend) {
#if TANDEM_HAS_CPU
    case Backend::cpu:
      return {cpu::available, cpu::prepare};
#endif
#if TANDEM_HAS_SM90
    case Backend::sm90:
      return {sm90::available, sm90::prepare};
#endif
#if TANDEM_HAS_EMULATOR
    case Backend::emulator:
      return {emulator::available, emulator::prepare};
#endif
    default:
      return {nullptr, nullptr};
  }
}

Status missing(Backend backend) {
  return error(Code::unsupported, "options.backend", "this build of Tandem holds no %s backend", name(backend));
}

}  // namespace

std::span<const KernelInfo> compiled_kernels() noexcept {
#if TANDEM_HAS_SM90
  return sm90::kernels();
#else
  return {};
#endif
}

Result<Plan> plan(const Attention& attention) noexcept {
  return guarded([&]() -> Result<Plan> {
    const Entry chosen = entry(attention.backend);
    if (chosen.prepare == nullptr) return missing(attention.backend);
    ExecutableResult executable = chosen.prepare(attention);
    if (!executable) return executable.status();
    return Plan(std::move(*executable));
  });
}

}  // namespace internal

Result<Plan> plan(Pass pass, const Problem& problem) noexcept {
  const Result<internal::Attention> attention = internal::resolve(pass, problem);
  if (!attention) return attention.status();
  return internal::plan(*attention);
}

Status available(Backend backend) noexcept {
  using namespace internal;
  return guarded([&]() -> Status {
    if (backend != Backend::automatic) {
      const Entry chosen = entry(backend);
      return chosen.available == nullptr ? missing(backend) : chosen.available();
    }
    for (const Backend candidate : {Backend::sm90, Backend::cpu}) {
      const Entry chosen = entry(candidate);
      if (chosen.available != nullptr && chosen.available().ok()) return {};
    }
    return error(Code::no_device, "backend", "neither the sm90 nor the cpu backend can run here");
  });
}

}  // namespace tandem
