// What the host side of the Hopper backend needs of a device: tensor maps, launches, clearing memory. The CUDA driver
// is one implementation, the emulator another, so that both run the same plans and the same launch code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/sm90/ptx/types.hpp"
#include "tandem/tandem.hpp"

namespace tandem::internal::sm90 {

/// A tensor for TMA, innermost dimension first. Strides are of dimensions 1 and up.
struct TensorMapSpec {
  void* base = nullptr;
  Dtype dtype = Dtype::bf16;
  int rank = 0;
  uint64_t size[5] = {};
  uint64_t stride_bytes[4] = {};
  uint32_t box[5] = {};
  ptx::Swizzle swizzle = ptx::Swizzle::bytes128;
};

/// A loaded kernel: what it is belongs to the device.
using KernelHandle = void*;

struct Launch {
  KernelHandle kernel = nullptr;
  int grid = 0;
  int threads = 0;
  int shared_bytes = 0;
  const void* parameters = nullptr;
  size_t parameter_bytes = 0;
  void* stream = nullptr;
  // The kernel waits for earlier ones itself (ptx::wait_for_previous_kernel), so that it may begin while they end.
  bool overlaps_previous = false;
};

struct DeviceTraits {
  int multiprocessors = 132;
};

class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual DeviceTraits traits() const noexcept = 0;
  /// At plan time: makes a kernel ready to be launched, so that the first launch may happen inside a graph capture.
  /// `cubin`: of a kernel that isn't the library's, or null.
  virtual Result<KernelHandle> load(const char* name, const void* cubin, int shared_bytes) noexcept = 0;
  Result<KernelHandle> load(const char* name, int shared_bytes) noexcept { return load(name, nullptr, shared_bytes); }
  virtual Status encode(const TensorMapSpec& spec, ptx::TensorMap& map) const noexcept = 0;
  virtual Status clear(void* data, size_t bytes, void* stream) const noexcept = 0;
  virtual Status launch(const Launch& launch) const noexcept = 0;
  /// Waits for the stream.
  virtual Status copy_to_host(void* destination, const void* source, size_t bytes, void* stream) const noexcept = 0;
};

}  // namespace tandem::internal::sm90
