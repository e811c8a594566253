// A thin loader over libcuda.so.1. Signatures are those of the driver's documentation, with its handle types spelled as
// what they are: a device is an int, a device pointer 64 bits, contexts, streams and events are opaque pointers.
#include "tools/cuda_memory.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>

#include "tools/failure.hpp"

namespace tandem::tools {
namespace {

using DevicePointer = uint64_t;

struct Driver {
  void* library = nullptr;
  std::string problem;
  int (*init)(unsigned) = nullptr;
  int (*version)(int*) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  int (*device_attribute)(int*, int, int) = nullptr;
  int (*device_memory)(size_t*, int) = nullptr;
  int (*context_retain)(void**, int) = nullptr;
  int (*context_release)(int) = nullptr;
  int (*context_set)(void*) = nullptr;
  int (*allocate)(DevicePointer*, size_t) = nullptr;
  int (*release)(DevicePointer) = nullptr;
  int (*upload)(DevicePointer, const void*, size_t) = nullptr;
  int (*download)(void*, DevicePointer, size_t) = nullptr;
  int (*stream_create)(void**, unsigned) = nullptr;
  int (*stream_destroy)(void*) = nullptr;
  int (*stream_synchronize)(void*) = nullptr;
  int (*event_create)(void**, unsigned) = nullptr;
  int (*event_destroy)(void*) = nullptr;
  int (*event_record)(void*, void*) = nullptr;
  int (*event_synchronize)(void*) = nullptr;
  int (*event_elapsed)(float*, void*, void*) = nullptr;
  int (*error_name)(int, const char**) = nullptr;

  std::string name_of(int error) const {
    const char* text = nullptr;
    if (error_name != nullptr) error_name(error, &text);
    return text != nullptr ? text : fmt::format("error {}", error);
  }
  void check(int error, const char* doing) const {
    if (error != 0) throw Failure(fmt::format("CUDA driver: {}: {}", doing, name_of(error)));
  }
};

Driver open_driver() {
  Driver d;
  d.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (d.library == nullptr) {
    d.problem = "there is no NVIDIA driver (libcuda.so.1 can't be opened)";
    return d;
  }
  const auto find = [&d](auto& function, const char* name) {
    void* symbol = dlsym(d.library, name);
    if (symbol == nullptr && d.problem.empty()) d.problem = fmt::format("the NVIDIA driver has no {}", name);
    function = reinterpret_cast<std::decay_t<decltype(function)>>(symbol);
  };
  find(d.init, "cuInit");
  find(d.version, "cuDriverGetVersion");
  find(d.device_count, "cuDeviceGetCount");
  find(d.device_get, "cuDeviceGet");
  find(d.device_name, "cuDeviceGetName");
  find(d.device_attribute, "cuDeviceGetAttribute");
  find(d.device_memory, "cuDeviceTotalMem_v2");
  find(d.context_retain, "cuDevicePrimaryCtxRetain");
  find(d.context_release, "cuDevicePrimaryCtxRelease_v2");
  find(d.context_set, "cuCtxSetCurrent");
  find(d.allocate, "cuMemAlloc_v2");
  find(d.release, "cuMemFree_v2");
  find(d.upload, "cuMemcpyHtoD_v2");
  find(d.download, "cuMemcpyDtoH_v2");
  find(d.stream_create, "cuStreamCreate");
  find(d.stream_destroy, "cuStreamDestroy_v2");
  find(d.stream_synchronize, "cuStreamSynchronize");
  find(d.event_create, "cuEventCreate");
  find(d.event_destroy, "cuEventDestroy_v2");
  find(d.event_record, "cuEventRecord");
  find(d.event_synchronize, "cuEventSynchronize");
  find(d.event_elapsed, "cuEventElapsedTime");
  find(d.error_name, "cuGetErrorName");
  if (!d.problem.empty()) return d;
  if (const int error = d.init(0); error != 0) d.problem = "cuInit: " + d.name_of(error);
  return d;
}

const Driver& driver() {
  static const Driver instance = open_driver();
  return instance;
}

CudaDeviceInfo device_info(const Driver& d, int index) {
  constexpr int multiprocessors = 16, major = 75, minor = 76;  // CU_DEVICE_ATTRIBUTE_...
  int device = 0;
  char name[256] = {};
  CudaDeviceInfo info{index, "", 0, 0, 0, 0};
  d.check(d.device_get(&device, index), "cuDeviceGet");
  d.check(d.device_name(name, sizeof name, device), "cuDeviceGetName");
  d.check(d.device_attribute(&info.major, major, device), "cuDeviceGetAttribute");
  d.check(d.device_attribute(&info.minor, minor, device), "cuDeviceGetAttribute");
  d.check(d.device_attribute(&info.multiprocessors, multiprocessors, device), "cuDeviceGetAttribute");
  d.check(d.device_memory(&info.memory_bytes, device), "cuDeviceTotalMem");
  info.name = name;
  return info;
}

class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(int index) : driver_(driver()), index_(index) {
    name_ = device_info(driver_, index).name;
    driver_.check(driver_.device_get(&device_, index), "cuDeviceGet");
    void* context = nullptr;
    driver_.check(driver_.context_retain(&context, device_), "cuDevicePrimaryCtxRetain");
    driver_.check(driver_.context_set(context), "cuCtxSetCurrent");
    constexpr unsigned non_blocking = 1;  // a stream of our own, so that a launch on the wrong stream would show
    driver_.check(driver_.stream_create(&stream_, non_blocking), "cuStreamCreate");
    driver_.check(driver_.event_create(&begin_, 0), "cuEventCreate");
    driver_.check(driver_.event_create(&end_, 0), "cuEventCreate");
  }
  ~CudaMemory() override {
    driver_.event_destroy(begin_);
    driver_.event_destroy(end_);
    driver_.stream_destroy(stream_);
    driver_.context_release(device_);
  }

  Device device() const override { return cuda(index_); }
  std::string device_name() const override { return name_; }
  void* allocate(size_t bytes) override {
    DevicePointer data = 0;
    const int error = driver_.allocate(&data, bytes != 0 ? bytes : 1);
    if (error != 0) {
      throw Failure(fmt::format("{} bytes on the GPU can't be allocated: {}", bytes, driver_.name_of(error)));
    }
    return reinterpret_cast<void*>(data);
  }
  void release(void* data) noexcept override { driver_.release(reinterpret_cast<DevicePointer>(data)); }
  void upload(void* to, const void* from, size_t bytes) override {
    if (bytes != 0)
      driver_.check(driver_.upload(reinterpret_cast<DevicePointer>(to), from, bytes), "copying to the GPU");
    // The copy may still be in flight on the default stream, which ours doesn't wait for.
    driver_.check(driver_.stream_synchronize(nullptr), "copying to the GPU");
  }
  void download(void* to, const void* from, size_t bytes) override {
    synchronize();
    if (bytes != 0)
      driver_.check(driver_.download(to, reinterpret_cast<DevicePointer>(from), bytes), "copying from the GPU");
  }
  void* stream() const override { return stream_; }
  void synchronize() override { driver_.check(driver_.stream_synchronize(stream_), "waiting for the GPU"); }
  double seconds(const std::function<void()>& work) override {
    driver_.check(driver_.event_record(begin_, stream_), "cuEventRecord");
    work();
    driver_.check(driver_.event_record(end_, stream_), "cuEventRecord");
    driver_.check(driver_.event_synchronize(end_), "waiting for the GPU");
    float milliseconds = 0;
    driver_.check(driver_.event_elapsed(&milliseconds, begin_, end_), "cuEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  const Driver& driver_;
  int index_;
  int device_ = 0;
  std::string name_;
  void *stream_ = nullptr, *begin_ = nullptr, *end_ = nullptr;
};

}  // namespace

CudaInfo cuda_info() noexcept {
  CudaInfo info;
  try {
    const Driver& d = driver();
    info.problem = d.problem;
    if (!d.problem.empty()) return info;
    d.version(&info.driver_version);
    int count = 0;
    d.check(d.device_count(&count), "cuDeviceGetCount");
    for (int index = 0; index < count; ++index) info.devices.push_back(device_info(d, index));
    if (count == 0) info.problem = "the NVIDIA driver sees no GPU";
  } catch (const std::exception& error) {
    info.problem = error.what();
  }
  return info;
}

std::unique_ptr<Memory> cuda_memory(int device) {
  const CudaInfo info = cuda_info();
  if (!info.problem.empty()) throw Failure("no GPU can be used: " + info.problem);
  if (device < 0 || static_cast<size_t>(device) >= info.devices.size()) {
    throw Failure(fmt::format("there is no GPU {}; the driver sees {}", device, info.devices.size()));
  }
  return std::make_unique<CudaMemory>(device);
}

void* cuda_symbol(const char* name) noexcept {
  const Driver& d = driver();
  return d.library == nullptr ? nullptr : dlsym(d.library, name);
}

}  // namespace tandem::tools
