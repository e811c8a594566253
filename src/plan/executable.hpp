// What a backend makes of a resolved problem: the object behind tandem::Plan.
#pragma once

#include <memory>
#include <string>

#include "common/status.hpp"
#include "plan/attention.hpp"

namespace tandem::internal {

class Executable {
 public:
  explicit Executable(const Attention& attention) : attention_(attention) {}
  virtual ~Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  const Attention& attention() const { return attention_; }
  virtual size_t workspace_bytes() const noexcept = 0;
  virtual std::string describe() const = 0;
  /// The problem's, with the rows of blocks that this backend chose.
  virtual Quantization quantization() const noexcept { return attention_.quantization; }
  /// Arguments and workspace have been checked against the plan by api/ already.
  virtual Status run(const Arguments& arguments, void* workspace, void* stream) const noexcept = 0;
  /// For Options::check_lengths: waits for the stream, then copies from the tensors' device.
  virtual Status copy_to_host(void*, const void*, size_t, void*) const noexcept {
    return error(Code::internal, "", "this backend's lengths lie in CPU memory");
  }

 private:
  Attention attention_;
};

using ExecutableResult = Result<std::shared_ptr<const Executable>>;

}  // namespace tandem::internal
