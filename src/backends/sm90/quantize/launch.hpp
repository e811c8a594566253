// The quantiser on a device: the CUDA driver's, or the emulator's.
#pragma once

#include <memory>

#include "backends/sm90/device.hpp"
#include "plan/executable.hpp"

namespace tandem::internal::sm90::quantize {

ExecutableResult prepare(const Attention& attention, std::shared_ptr<Device> device) noexcept;

}  // namespace tandem::internal::sm90::quantize
