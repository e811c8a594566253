// The small public functions: specs, names, version, compiled kernels.
#include "plan/plan.hpp"
#include "plan/spec.hpp"

namespace tandem {

TensorSpec contiguous(Dtype dtype, Device device, std::initializer_list<int64_t> size) noexcept {
  return internal::row_major(dtype, device, size.begin(), static_cast<int>(size.size()));
}

const char* version() noexcept { return TANDEM_VERSION; }

const char* name(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::none:
      return "none";
    case Dtype::fp32:
      return "fp32";
    case Dtype::fp16:
      return "fp16";
    case Dtype::bf16:
      return "bf16";
    case Dtype::e4m3:
      return "e4m3";
    case Dtype::int8:
      return "int8";
    case Dtype::int32:
      return "int32";
    case Dtype::int64:
      return "int64";
  }
  return "unknown";
}

const char* name(Backend backend) noexcept {
  switch (backend) {
    case Backend::automatic:
      return "automatic";
    case Backend::cpu:
      return "cpu";
    case Backend::sm90:
      return "sm90";
    case Backend::emulator:
      return "emulator";
  }
  return "unknown";
}

const char* name(Code code) noexcept {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid argument";
    case Code::unsupported:
      return "unsupported";
    case Code::no_device:
      return "no device";
    case Code::out_of_memory:
      return "out of memory";
    case Code::driver:
      return "driver";
    case Code::internal:
      return "internal";
  }
  return "unknown";
}

size_t kernel_count() noexcept { return internal::compiled_kernels().size(); }

const KernelInfo& kernel_info(size_t index) noexcept {
  static constexpr KernelInfo none{"", "", "", 0, 0, 0, 0, 0, 0, 0, 0};
  const auto kernels = internal::compiled_kernels();
  return index < kernels.size() ? kernels[index] : none;
}

}  // namespace tandem
