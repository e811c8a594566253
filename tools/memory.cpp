// Host memory, and the choice between it and a GPU's.
#include "tools/memory.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tools/cuda_memory.hpp"
#include "tools/failure.hpp"

namespace tandem::tools {
namespace {

class HostMemory final : public Memory {
 public:
  Device device() const override { return cpu(); }
  std::string device_name() const override {
    return "CPU with " + std::to_string(std::thread::hardware_concurrency()) + " threads";
  }
  void* allocate(size_t bytes) override {
    constexpr size_t alignment = 256;
    void* data = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
    if (data == nullptr) throw Failure("the host has no " + std::to_string(bytes) + " bytes of memory left");
    return data;
  }
  void release(void* data) noexcept override { std::free(data); }
  void upload(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void* stream() const override { return nullptr; }
  void synchronize() override {}
  double seconds(const std::function<void()>& work) override {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
};

}  // namespace

std::unique_ptr<Memory> host_memory() { return std::make_unique<HostMemory>(); }

std::unique_ptr<Memory> memory_for(Backend backend) {
  if (backend == Backend::sm90) return cuda_memory(0);
  return host_memory();
}

}  // namespace tandem::tools
