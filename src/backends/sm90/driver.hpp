// The CUDA driver, opened at run time: the few functions that Tandem calls, with their types, so that neither a toolkit
// nor a driver is needed to build or link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/tandem.hpp"

namespace tandem::internal::sm90::driver {

using Result = int;        // CUresult; 0 is success
using DeviceNumber = int;  // CUdevice
using Context = void*;     // CUcontext
using Stream = void*;      // CUstream
using Library = void*;     // CUlibrary
using Kernel = void*;      // CUkernel
using Function = void*;    // CUfunction
using Address = uint64_t;  // CUdeviceptr

// Values of the driver's enumerations (cuda.h of 13.0; they never change).
enum class DeviceAttribute : int { multiprocessors = 16, major = 75, minor = 76 };
enum class FunctionAttribute : int { max_dynamic_shared_bytes = 8 };
enum class MapType : int { uint8 = 0, fp16 = 6, fp32 = 7, bf16 = 9 };
enum class MapSwizzle : int { none = 0, bytes32 = 1, bytes64 = 2, bytes128 = 3 };
enum class MapPromotion : int { none = 0, bytes64 = 1, bytes128 = 2, bytes256 = 3 };

/// CUlaunchAttribute and CUlaunchConfig, as far as Tandem uses them.
struct LaunchAttribute {
  static constexpr int programmatic_stream_serialization = 6;
  int id;
  int padding;
  union {
    int value;
    char all[64];
  };
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct Functions {
  Result (*cuInit)(unsigned);
  Result (*cuDriverGetVersion)(int*);
  Result (*cuGetErrorName)(Result, const char**);
  Result (*cuDeviceGetCount)(int*);
  Result (*cuDeviceGet)(DeviceNumber*, int);
  Result (*cuDeviceGetName)(char*, int, DeviceNumber);
  Result (*cuDeviceGetAttribute)(int*, DeviceAttribute, DeviceNumber);
  Result (*cuDevicePrimaryCtxRetain)(Context*, DeviceNumber);
  Result (*cuCtxGetCurrent)(Context*);
  Result (*cuCtxGetDevice)(DeviceNumber*);
  Result (*cuCtxPushCurrent_v2)(Context);
  Result (*cuCtxPopCurrent_v2)(Context*);
  Result (*cuLibraryLoadData)(Library*, const void*, void*, void*, unsigned, void*, void*, unsigned);
  Result (*cuLibraryUnload)(Library);
  Result (*cuLibraryGetKernel)(Kernel*, Library, const char*);
  Result (*cuKernelGetFunction)(Function*, Kernel);
  Result (*cuKernelSetAttribute)(FunctionAttribute, int, Kernel, DeviceNumber);
  Result (*cuLaunchKernelEx)(const LaunchConfig*, Function, void**, void**);
  Result (*cuMemsetD32Async)(Address, unsigned, size_t, Stream);
  Result (*cuMemcpyDtoHAsync_v2)(void*, Address, size_t, Stream);
  Result (*cuStreamSynchronize)(Stream);
  Result (*cuTensorMapEncodeTiled)(void*, MapType, unsigned, void*, const uint64_t*, const uint64_t*, const uint32_t*,
                                   const uint32_t*, int, MapSwizzle, MapPromotion, int);
};

/// The driver's functions; or the Status that says that there is no driver, that it is too old, or that no GPU answers.
tandem::Result<const Functions*> open() noexcept;

/// The Status of a driver call: its name and the error's.
Status check(const Functions& functions, Result result, const char* call) noexcept;

}  // namespace tandem::internal::sm90::driver
