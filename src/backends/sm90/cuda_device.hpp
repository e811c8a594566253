// The CUDA driver as a Device: one per GPU, made at plan time, shared by plans.
#pragma once

#include <memory>

#include "backends/sm90/device.hpp"

namespace tandem::internal::sm90 {

/// The GPU of that number; or the Status that says why it can't serve: no driver, no such device, not a Hopper GPU.
Result<std::shared_ptr<Device>> cuda_device(int index) noexcept;

}  // namespace tandem::internal::sm90
