// Runs a backward plan on a device: tensor maps, parameters, copies, the three launches.
#pragma once

#include <memory>

#include "backends/sm90/device.hpp"
#include "plan/executable.hpp"

namespace tandem::internal::sm90::backward {

/// For the CUDA driver and for the emulator alike.
ExecutableResult prepare(const Attention& attention, std::shared_ptr<Device> device) noexcept;

}  // namespace tandem::internal::sm90::backward
