// GPU memory, streams and events through the CUDA driver, which is opened at run time: the program needs no CUDA header
// to build and no GPU to start.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/memory.hpp"

namespace tandem::tools {

struct CudaDeviceInfo {
  int index;
  std::string name;
  int major, minor;  // compute capability
  int multiprocessors;
  size_t memory_bytes;
};

struct CudaInfo {
  std::string problem;     // why there is no device; empty if there is
  int driver_version = 0;  // 13000 is 13.0
  std::vector<CudaDeviceInfo> devices;
};

/// Never throws: a machine without a driver is an ordinary machine.
CudaInfo cuda_info() noexcept;

/// Failure where there is no driver or no such device. Holds the device's primary context, current on this thread.
std::unique_ptr<Memory> cuda_memory(int device);

/// A function of the driver by its exported name; null if this driver has none.
void* cuda_symbol(const char* name) noexcept;

}  // namespace tandem::tools
