// Tensors that the kernels can't take as they lie: contiguous copies in the workspace.
#pragma once

#include "backends/sm90/device.hpp"
#include "backends/sm90/tensor_maps.hpp"

namespace tandem::internal::sm90::copy {

constexpr const char* kernel_name = "copy_16bit";

/// A tensor of 16-bit elements where the kernels find it.
struct Placed {
  TensorSpec spec;
  void* data;
};

/// The tensor's contiguous copy.
Placed in_workspace(const TensorSpec& spec, void* data) noexcept;

Status launch(const Device& device, KernelHandle kernel, const Placed& from, const Placed& to, const Side& side,
              void* stream) noexcept;

}  // namespace tandem::internal::sm90::copy
