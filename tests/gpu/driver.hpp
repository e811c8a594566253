// What the GPU's tests need of the CUDA driver beyond memory: streams, copies in stream order, graphs, contexts. The
// functions are looked up at run time, so that the tests build without CUDA.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "tools/cuda_memory.hpp"

namespace tandem::testing {

/// Calls an exported driver function; a name that is missing or an error ends the test with an exception.
template <class... Arguments>
void driver_call(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(tools::cuda_symbol(name));
  if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  if (const int error = function(arguments...); error != 0)
    throw std::runtime_error(std::string(name) + " returned " + std::to_string(error));
}

inline uint64_t address(const void* data) { return reinterpret_cast<uint64_t>(data); }

inline void fill_async(void* data, uint32_t word, size_t bytes, void* stream) {
  if (bytes != 0) driver_call("cuMemsetD32Async", address(data), word, bytes / 4, stream);
}
inline void copy_async(void* to, const void* from, size_t bytes, void* stream) {
  if (bytes != 0) driver_call("cuMemcpyDtoDAsync_v2", address(to), address(from), bytes, stream);
}
inline void synchronize(void* stream) { driver_call("cuStreamSynchronize", stream); }

inline void* current_context() {
  void* context = nullptr;
  driver_call("cuCtxGetCurrent", &context);
  return context;
}
inline void make_current(void* context) { driver_call("cuCtxSetCurrent", context); }

/// A stream that doesn't wait for the default one.
class Stream {
 public:
  Stream() { driver_call("cuStreamCreate", &stream_, 1U); }
  ~Stream() {
    const auto destroy = reinterpret_cast<int (*)(void*)>(tools::cuda_symbol("cuStreamDestroy_v2"));
    destroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* get() const { return stream_; }

 private:
  void* stream_ = nullptr;
};

/// What `work` enqueues on a stream, as a graph. Capturing in the strictest mode, so that any call that a capture
/// forbids, on any thread, is an error.
class Graph {
 public:
  template <class Work>
  Graph(void* stream, Work&& work) {
    driver_call("cuStreamBeginCapture_v2", stream, 0);
    std::forward<Work>(work)();
    driver_call("cuStreamEndCapture", stream, &graph_);
    driver_call("cuGraphInstantiateWithFlags", &executable_, graph_, 0ULL);
  }
  ~Graph() {
    const auto destroy = [](const char* name, void* handle) {
      if (handle != nullptr) reinterpret_cast<int (*)(void*)>(tools::cuda_symbol(name))(handle);
    };
    destroy("cuGraphExecDestroy", executable_);
    destroy("cuGraphDestroy", graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(void* stream) { driver_call("cuGraphLaunch", executable_, stream); }

 private:
  void* graph_ = nullptr;
  void* executable_ = nullptr;
};

}  // namespace tandem::testing
