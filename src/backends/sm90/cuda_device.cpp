// The CUDA driver as a Device. Kernels are loaded as libraries, which belong to no context; a launch goes to the device
// of its stream, and where the caller's current context is of another device the right one is current for the call
// only.
#include "backends/sm90/cuda_device.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "backends/sm90/driver.hpp"
#include "backends/sm90/kernels.hpp"
#include "common/status.hpp"

namespace tandem::internal::sm90 {
namespace {

using driver::check;

/// The device's primary context is current within this object's life; the caller's comes back after.
class CurrentDevice {
 public:
  CurrentDevice(const driver::Functions& f, driver::DeviceNumber device, driver::Context primary) : f_(f) {
    driver::Context current = nullptr;
    driver::DeviceNumber of_current = -1;
    if (f.cuCtxGetCurrent(&current) == 0 && current != nullptr && f.cuCtxGetDevice(&of_current) == 0 &&
        of_current == device)
      return;
    status_ = check(f, f.cuCtxPushCurrent_v2(primary), "cuCtxPushCurrent");
    pushed_ = status_.ok();
  }
  ~CurrentDevice() {
    driver::Context popped = nullptr;
    if (pushed_) (void)f_.cuCtxPopCurrent_v2(&popped);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  const Status& status() const { return status_; }

 private:
  const driver::Functions& f_;
  bool pushed_ = false;
  Status status_;
};

driver::MapType map_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return driver::MapType::fp32;
    case Dtype::fp16:
      return driver::MapType::fp16;
    case Dtype::bf16:
      return driver::MapType::bf16;
    default:
      return driver::MapType::uint8;
  }
}

driver::MapSwizzle map_swizzle(ptx::Swizzle swizzle) {
  switch (swizzle) {
    case ptx::Swizzle::none:
      return driver::MapSwizzle::none;
    case ptx::Swizzle::bytes32:
      return driver::MapSwizzle::bytes32;
    case ptx::Swizzle::bytes64:
      return driver::MapSwizzle::bytes64;
    default:
      return driver::MapSwizzle::bytes128;
  }
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const driver::Functions& f, driver::DeviceNumber device, driver::Context primary, int multiprocessors)
      : f_(f), device_(device), primary_(primary), multiprocessors_(multiprocessors) {}

  DeviceTraits traits() const noexcept override { return {multiprocessors_}; }

  Result<KernelHandle> load(const char* name, const void* cubin, int shared_bytes) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      if (const auto found = kernels_.find(name); found != kernels_.end()) return found->second;
      const KernelImage* own = cubin == nullptr ? find_kernel(name) : nullptr;
      const Result<KernelHandle> kernel = load_new(name, own != nullptr ? own->cubin : cubin, shared_bytes);
      if (kernel) kernels_[name] = *kernel;
      return kernel;
    } catch (const std::bad_alloc&) {
      return error(Code::out_of_memory, "", "out of memory while loading the kernel %s", name);
    }
  }

  Status encode(const TensorMapSpec& spec, ptx::TensorMap& map) const noexcept override {
    const uint32_t element_strides[5] = {1, 1, 1, 1, 1};
    return check(f_,
                 f_.cuTensorMapEncodeTiled(&map, map_type(spec.dtype), static_cast<unsigned>(spec.rank), spec.base,
                                           spec.size, spec.stride_bytes, spec.box, element_strides, 0,
                                           map_swizzle(spec.swizzle), driver::MapPromotion::bytes256, 0),
                 "cuTensorMapEncodeTiled");
  }

  Status clear(void* data, size_t bytes, void* stream) const noexcept override {
    const CurrentDevice current(f_, device_, primary_);
    if (!current.status().ok()) return current.status();
    return check(f_, f_.cuMemsetD32Async(reinterpret_cast<driver::Address>(data), 0, bytes / 4, stream),
                 "cuMemsetD32Async");
  }

  Status launch(const Launch& launch) const noexcept override {
    const CurrentDevice current(f_, device_, primary_);
    if (!current.status().ok()) return current.status();
    void* arguments[] = {const_cast<void*>(launch.parameters)};
    const auto size = [](int x) { return static_cast<unsigned>(x); };
    driver::LaunchAttribute overlap{driver::LaunchAttribute::programmatic_stream_serialization, 0, {1}};
    const driver::LaunchConfig config{{size(launch.grid), 1, 1},
                                      {size(launch.threads), 1, 1},
                                      size(launch.shared_bytes),
                                      launch.stream,
                                      &overlap,
                                      launch.overlaps_previous ? 1U : 0U};
    return check(f_, f_.cuLaunchKernelEx(&config, launch.kernel, arguments, nullptr), "cuLaunchKernelEx");
  }

  Status copy_to_host(void* destination, const void* source, size_t bytes, void* stream) const noexcept override {
    const CurrentDevice current(f_, device_, primary_);
    if (!current.status().ok()) return current.status();
    Status status =
        check(f_, f_.cuMemcpyDtoHAsync_v2(destination, reinterpret_cast<driver::Address>(source), bytes, stream),
              "cuMemcpyDtoHAsync");
    if (status.ok()) status = check(f_, f_.cuStreamSynchronize(stream), "cuStreamSynchronize");
    return status;
  }

 private:
  Result<KernelHandle> load_new(const char* name, const void* cubin, int shared_bytes) {
    if (cubin == nullptr)
      return error(Code::unsupported, "options.backend", "the kernel %s is not in this build (TANDEM_CUDA was off)",
                   name);
    const CurrentDevice current(f_, device_, primary_);
    if (!current.status().ok()) return current.status();
    driver::Library library = nullptr;
    driver::Kernel kernel = nullptr;
    driver::Function function = nullptr;
    Status status =
        check(f_, f_.cuLibraryLoadData(&library, cubin, nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData");
    if (status.ok()) status = check(f_, f_.cuLibraryGetKernel(&kernel, library, name), "cuLibraryGetKernel");
    if (status.ok() && shared_bytes > 0)
      status = check(
          f_,
          f_.cuKernelSetAttribute(driver::FunctionAttribute::max_dynamic_shared_bytes, shared_bytes, kernel, device_),
          "cuKernelSetAttribute");
    // Asking for the function loads the code now, not at the first launch, which may be inside a graph capture. The
    // function itself belongs to this context; launches take the kernel, which belongs to none.
    if (status.ok()) status = check(f_, f_.cuKernelGetFunction(&function, kernel), "cuKernelGetFunction");
    if (!status.ok()) {
      if (library != nullptr) (void)f_.cuLibraryUnload(library);
      return status;
    }
    return KernelHandle{kernel};
  }

  const driver::Functions& f_;
  const driver::DeviceNumber device_;
  const driver::Context primary_;
  const int multiprocessors_;
  std::mutex mutex_;
  std::map<std::string, KernelHandle, std::less<>> kernels_;
};

Result<std::shared_ptr<Device>> open_device(const driver::Functions& f, int index) {
  int count = 0;
  Status status = check(f, f.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (!status.ok()) return status;
  if (index < 0 || index >= count)
    return error(Code::no_device, "query.device", "there is no CUDA device %d; this machine has %d", index, count);
  driver::DeviceNumber device = 0;
  char name[128] = {};
  int major = 0, minor = 0, multiprocessors = 0;
  status = check(f, f.cuDeviceGet(&device, index), "cuDeviceGet");
  if (status.ok()) status = check(f, f.cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName");
  const auto attribute = [&](int& value, driver::DeviceAttribute which) {
    if (status.ok()) status = check(f, f.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
  };
  attribute(major, driver::DeviceAttribute::major);
  attribute(minor, driver::DeviceAttribute::minor);
  attribute(multiprocessors, driver::DeviceAttribute::multiprocessors);
  if (!status.ok()) return status;
  if (major != 9 || minor != 0)
    return error(Code::no_device, "query.device",
                 "device %d is %s of compute capability %d.%d; the kernels need a Hopper GPU (9.0)", index, name, major,
                 minor);
  driver::Context primary = nullptr;
  status = check(f, f.cuDevicePrimaryCtxRetain(&primary, device), "cuDevicePrimaryCtxRetain");
  if (!status.ok()) return status;
  return std::shared_ptr<Device>(std::make_shared<CudaDevice>(f, device, primary, multiprocessors));
}

}  // namespace

Result<std::shared_ptr<Device>> cuda_device(int index) noexcept {
  try {
    // Devices and what they loaded live as long as the process: kernels can't be unloaded while a graph may hold them.
    static std::mutex mutex;
    static std::map<int, std::shared_ptr<Device>> devices;
    const std::lock_guard lock(mutex);
    if (const auto found = devices.find(index); found != devices.end()) return found->second;
    const auto functions = driver::open();
    if (!functions) return functions.status();
    auto device = open_device(**functions, index);
    if (device) devices[index] = *device;
    return device;
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, "", "out of memory while opening CUDA device %d", index);
  }
}

}  // namespace tandem::internal::sm90
