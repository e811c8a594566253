// Runs an 8-bit forward plan on a device: tensor maps, parameters, the launch.
#pragma once

#include <memory>

#include "backends/sm90/device.hpp"
#include "plan/executable.hpp"

namespace tandem::internal::sm90::forward_fp8 {

/// For the CUDA driver and for the emulator alike.
ExecutableResult prepare(const Attention& attention, std::shared_ptr<Device> device) noexcept;

}  // namespace tandem::internal::sm90::forward_fp8
