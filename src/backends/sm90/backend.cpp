// The Hopper backend, as plan/ sees it.
#include "backends/backends.hpp"
#include "backends/sm90/backward/launch.hpp"
#include "backends/sm90/cuda_device.hpp"
#include "backends/sm90/forward/launch.hpp"
#include "backends/sm90/kernels.hpp"
#include "common/status.hpp"

namespace tandem::internal::sm90 {

Status available() noexcept {
  if (kernel_images().empty() || kernel_images().front().cubin == nullptr)
    return error(Code::no_device, "options.backend", "this build holds no Hopper kernels (TANDEM_CUDA was off)");
  return cuda_device(0).status();
}

ExecutableResult prepare(const Attention& attention) noexcept {
  if (attention.pass != Pass::forward && attention.pass != Pass::backward)
    return error(Code::unsupported, "pass", "the sm90 backend serves the forward and the backward pass");
  auto device = cuda_device(attention.device.index);
  if (!device) return device.status();
  if (attention.pass == Pass::backward) return backward::prepare(attention, std::move(*device));
  return forward::prepare(attention, std::move(*device));
}

}  // namespace tandem::internal::sm90
