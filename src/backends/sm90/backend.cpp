// The Hopper backend, as plan/ sees it.
#include "backends/backends.hpp"
#include "backends/sm90/backward/launch.hpp"
#include "backends/sm90/cuda_device.hpp"
#include "backends/sm90/forward/launch.hpp"
#include "backends/sm90/forward_fp8/launch.hpp"
#include "backends/sm90/kernels.hpp"
#include "backends/sm90/quantize/launch.hpp"
#include "common/status.hpp"
#include "plan/scales.hpp"

namespace tandem::internal::sm90 {

Status available() noexcept {
  if (kernel_images().empty() || kernel_images().front().cubin == nullptr)
    return error(Code::no_device, "options.backend", "this build holds no Hopper kernels (TANDEM_CUDA was off)");
  return cuda_device(0).status();
}

ExecutableResult prepare(const Attention& attention) noexcept {
  if (attention.pass == Pass::append || attention.pass == Pass::merge)
    return error(Code::unsupported, "pass", "the sm90 backend serves the passes forward, backward and quantize");
  auto device = cuda_device(attention.device.index);
  if (!device) return device.status();
  if (attention.pass == Pass::quantize) return quantize::prepare(attention, std::move(*device));
  if (attention.pass == Pass::backward) return backward::prepare(attention, std::move(*device));
  if (eight_bits(attention.dtype)) return forward_fp8::prepare(attention, std::move(*device));
  return forward::prepare(attention, std::move(*device));
}

}  // namespace tandem::internal::sm90
