// The border between libtandem and libtandem_emulator.so: a table of functions behind one exported C symbol, so that
// the emulated kernels and their sanitizer hooks stay in a library of their own and never meet a user's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/sm90/ptx/types.hpp"
#include "tandem/tandem.hpp"

namespace tandem::emulator {

/// An emulated kernel, as TANDEM_KERNEL registers it.
struct Kernel {
  const char* name;
  int threads;
  size_t parameter_bytes;
  size_t shared_bytes;  // of its shared-memory struct; 0 if it has none
  const ptx::Part* parts;
  size_t part_count;
  void (*function)(const void* parameters);
};

/// What cuTensorMapEncodeTiled takes. `stride` holds bytes, from the second dimension on; `swizzle` bytes of a row, or
/// 0.
struct TensorMapRequest {
  Dtype element = Dtype::bf16;
  int rank = 0;
  void* base = nullptr;
  uint64_t size[5] = {};
  uint64_t stride[4] = {};
  uint32_t box[5] = {};
  int swizzle = 0;
};

/// Global memory that a launch may touch: the elements of a tensor. Accesses anywhere else are reported, in gaps
/// between its rows too, where another tensor may lie.
struct Buffer {
  const char* name;
  const void* data;
  size_t bytes;  // from the first element to behind the last
  bool writable;
  /// A byte for each of `bytes`: whether it holds something. Launches set them, and report reads where one is 0. Null:
  /// all of it does.
  uint8_t* written = nullptr;
  int rank = 0;  // 0: bytes without gaps
  size_t element_bytes = 1;
  uint64_t size[5] = {}, stride[5] = {};  // in bytes
};

/// A span of virtual time (cycles) on one track of a block's timeline.
struct TraceEvent {
  const char* track;  // "warpgroup 1", "tensor core", "TMA"
  const char*
      kind;  // "wait", "barrier", "wgmma SS", "load", "store", "arithmetic", "wgmma wait"; "role" names the track
  const char* detail;  // the barrier, the stage, who issued it
  double begin, end;
};

struct LaunchOptions {
  uint64_t seed = 1;
  int delay = 64;           // an asynchronous copy takes up to this many scheduler steps
  int preempt = 0;          // > 0: one in so many shared-memory accesses gives way to another thread
  int sms = 2;              // blocks that are resident at once
  int host_threads = 1;     // > 1: blocks are shared out; only for kernels whose blocks don't wait for each other
  int registers = 0;        // per thread at launch; 0: what one block an SM leaves
  bool races = true;        // happens-before checks
  bool exact_sums = false;  // 16-bit wgmma sums to the last bit, as the tensor cores form them: slower
  bool timing = false;      // order threads by a model of time, and call `event`
  const Buffer* buffers = nullptr;  // none: global memory isn't bounds-checked
  size_t buffer_count = 0;
  void (*report)(void* context, const char* text) = nullptr;  // one finding, several lines
  void (*event)(void* context, const TraceEvent& event) = nullptr;
  void* context = nullptr;
};

struct LaunchResult {
  int findings = 0;
  int64_t switches = 0, accesses = 0, wgmmas = 0, copies = 0;
  double seconds = 0, cycles = 0;
};

struct Interface {
  static constexpr int current_version = 2;
  int version;
  size_t (*kernel_count)();
  const Kernel& (*kernel)(size_t index);
  /// False if the request breaks a rule of cuTensorMapEncodeTiled; `error` says which.
  bool (*encode)(const TensorMapRequest& request, ptx::TensorMap* map, char* error, size_t error_bytes);
  LaunchResult (*launch)(const Kernel& kernel, int grid, int threads, size_t shared_bytes, const void* parameters,
                         const LaunchOptions& options);
};

using InterfaceFunction = const Interface* (*)();
constexpr const char* interface_symbol = "tandem_emulator_interface";

}  // namespace tandem::emulator
