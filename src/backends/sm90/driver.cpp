// Opens libcuda.so.1 and looks its functions up.
#include "backends/sm90/driver.hpp"

#include <dlfcn.h>

#include "common/status.hpp"

namespace tandem::internal::sm90::driver {
namespace {

// Kernels compiled by CUDA 13 run on drivers of CUDA 13 and later.
constexpr int least_version = 13000;

struct Opened {
  Functions functions{};
  Status status;
};

template <class Function>
bool look_up(void* library, const char* name, Function& function, Status& status) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    status = error(Code::no_device, "options.backend", "the CUDA driver (libcuda.so.1) is too old: it has no %s", name);
  return function != nullptr;
}

Opened open_once() {
  Opened opened;
  Functions& f = opened.functions;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    opened.status = error(Code::no_device, "options.backend",
                          "no CUDA driver: libcuda.so.1 can't be opened; the cpu backend runs without one");
    return opened;
  }
#define TANDEM_LOOK_UP(name) look_up(library, #name, f.name, opened.status)
  const bool found =
      TANDEM_LOOK_UP(cuInit) && TANDEM_LOOK_UP(cuDriverGetVersion) && TANDEM_LOOK_UP(cuGetErrorName) &&
      TANDEM_LOOK_UP(cuDeviceGetCount) && TANDEM_LOOK_UP(cuDeviceGet) && TANDEM_LOOK_UP(cuDeviceGetName) &&
      TANDEM_LOOK_UP(cuDeviceGetAttribute) && TANDEM_LOOK_UP(cuDevicePrimaryCtxRetain) &&
      TANDEM_LOOK_UP(cuCtxGetCurrent) && TANDEM_LOOK_UP(cuCtxGetDevice) && TANDEM_LOOK_UP(cuCtxPushCurrent_v2) &&
      TANDEM_LOOK_UP(cuCtxPopCurrent_v2) && TANDEM_LOOK_UP(cuLibraryLoadData) && TANDEM_LOOK_UP(cuLibraryUnload) &&
      TANDEM_LOOK_UP(cuLibraryGetKernel) && TANDEM_LOOK_UP(cuKernelGetFunction) &&
      TANDEM_LOOK_UP(cuKernelSetAttribute) && TANDEM_LOOK_UP(cuLaunchKernelEx) && TANDEM_LOOK_UP(cuMemsetD32Async) &&
      TANDEM_LOOK_UP(cuMemcpyDtoHAsync_v2) && TANDEM_LOOK_UP(cuStreamSynchronize) &&
      TANDEM_LOOK_UP(cuTensorMapEncodeTiled);
#undef TANDEM_LOOK_UP
  if (!found) return opened;
  if (opened.status = check(f, f.cuInit(0), "cuInit"); !opened.status.ok()) {
    opened.status.code = Code::no_device;
    return opened;
  }
  int version = 0;
  if (opened.status = check(f, f.cuDriverGetVersion(&version), "cuDriverGetVersion"); !opened.status.ok())
    return opened;
  if (version < least_version)
    opened.status = error(Code::no_device, "options.backend",
                          "the CUDA driver serves CUDA %d.%d; the kernels need a driver for 13.0 or newer",
                          version / 1000, version % 1000 / 10);
  return opened;
}

}  // namespace

tandem::Result<const Functions*> open() noexcept {
  static const Opened opened = open_once();  // the driver stays open for the life of the process
  if (!opened.status.ok()) return opened.status;
  return &opened.functions;
}

Status check(const Functions& functions, Result result, const char* call) noexcept {
  if (result == 0) return {};
  const char* name = nullptr;
  if (functions.cuGetErrorName(result, &name) != 0 || name == nullptr) name = "an unknown error";
  return error(Code::driver, "", "%s failed: %s (%d)", call, name, result);
}

}  // namespace tandem::internal::sm90::driver
