// Where the tensors of a run live: host memory, or a GPU's. The commands are written once for both.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tandem/tandem.hpp"

namespace tandem::tools {

class Memory {
 public:
  Memory() = default;
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  virtual Device device() const = 0;
  virtual std::string device_name() const = 0;
  virtual void* allocate(size_t bytes) = 0;  // 256-byte aligned, not null for 0 bytes
  virtual void release(void* data) noexcept = 0;
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;
  virtual void* stream() const = 0;
  virtual void synchronize() = 0;
  /// Seconds from the moment the device begins what `work` enqueues on stream() until it is done.
  virtual double seconds(const std::function<void()>& work) = 0;
};

std::unique_ptr<Memory> host_memory();

/// The memory that `backend` works on: a GPU's for sm90 (Failure where there is none), else the host's.
std::unique_ptr<Memory> memory_for(Backend backend);

/// An allocation that is released with its owner.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Memory& memory, size_t bytes) : memory_(&memory), data_(memory.allocate(bytes)), bytes_(bytes) {}
  ~Buffer() {
    if (data_ != nullptr) memory_->release(data_);
  }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  Memory* memory_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tandem::tools
