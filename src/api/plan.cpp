// The methods of tandem::Plan: check, then hand on to what the backend has prepared.
#include "api/arguments.hpp"
#include "common/status.hpp"
#include "plan/executable.hpp"

namespace tandem {

Plan::Plan(std::shared_ptr<const internal::Executable> executable) noexcept : executable_(std::move(executable)) {}

size_t Plan::workspace_bytes() const noexcept { return executable_ ? executable_->workspace_bytes() : 0; }

Backend Plan::backend() const noexcept { return executable_ ? executable_->attention().backend : Backend::automatic; }

Quantization Plan::quantization() const noexcept { return executable_ ? executable_->quantization() : Quantization{}; }

std::string Plan::describe() const {
  std::string text;
  const Status status = internal::guarded([&]() -> Status {
    if (executable_) text = executable_->describe();
    return {};
  });
  return status.ok() ? text : std::string();
}

Status Plan::run(const Arguments& arguments, void* workspace, size_t workspace_bytes, void* stream) const noexcept {
  using namespace internal;
  if (!executable_) {
    return error(Code::invalid_argument, "plan", "the plan is empty: it has been moved from");
  }
  return guarded([&]() -> Status {
    const Attention& attention = executable_->attention();
    if (Status status =
            check_arguments(attention, arguments, workspace, workspace_bytes, executable_->workspace_bytes());
        !status.ok()) {
      return status;
    }
    if (Status status = check_length_values(*executable_, arguments, stream); !status.ok()) return status;
    return executable_->run(arguments, workspace, stream);
  });
}

}  // namespace tandem
