// Opening libraries of emulated kernels in tests, and memory for them.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "backends/emulator/interface.hpp"

namespace tandem::emulator {

inline const Interface& open_library(const char* file) {
  void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  return *reinterpret_cast<InterfaceFunction>(dlsym(handle, interface_symbol))();
}

inline const Kernel* find_kernel(const Interface& library, const char* name) {
  for (size_t i = 0; i < library.kernel_count(); ++i)
    if (std::strcmp(library.kernel(i).name, name) == 0) return &library.kernel(i);
  return nullptr;
}

/// An aligned copy, as device memory would be.
struct Memory {
  explicit Memory(const std::vector<uint8_t>& bytes) : bytes_(bytes.size()) {
    data = static_cast<uint8_t*>(std::aligned_alloc(256, (bytes.size() + 255) / 256 * 256));
    std::memcpy(data, bytes.data(), bytes.size());
  }
  ~Memory() { std::free(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::vector<uint8_t> content() const { return {data, data + bytes_}; }
  uint8_t* data;

 private:
  size_t bytes_;
};

}  // namespace tandem::emulator
