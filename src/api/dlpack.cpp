// See dlpack.hpp.
#include "api/dlpack.hpp"

#include <algorithm>

#include "common/status.hpp"
#include "plan/spec.hpp"

namespace tandem::internal {
namespace {

/// DLPack's number since version 1.1; older headers don't name it.
constexpr int dlpack_e4m3 = 10;

Dtype dtype_of(DLDataType type) {
  const struct {
    int code, bits;
    Dtype dtype;
  } known[] = {{kDLFloat, 32, Dtype::fp32},   {kDLFloat, 16, Dtype::fp16}, {kDLBfloat, 16, Dtype::bf16},
               {dlpack_e4m3, 8, Dtype::e4m3}, {kDLInt, 8, Dtype::int8},    {kDLInt, 32, Dtype::int32},
               {kDLInt, 64, Dtype::int64}};
  for (const auto& entry : known) {
    if (entry.code == type.code && entry.bits == type.bits) return entry.dtype;
  }
  return Dtype::none;
}

Status device_of(const char* name, DLDevice given, Device& device) {
  switch (static_cast<int>(given.device_type)) {
    case kDLCPU:
    case kDLCUDAHost:
      device = cpu();
      return {};
    case kDLCUDA:
    case kDLCUDAManaged:
      device = cuda(given.device_id);
      return {};
    default:
      return error(Code::invalid_argument, name,
                   "%s is on DLPack device type %d; kDLCPU, kDLCUDAHost, kDLCUDA and kDLCUDAManaged are served", name,
                   static_cast<int>(given.device_type));
  }
}

}  // namespace

Status from_dlpack(const char* name, const DLTensor* tensor, TensorSpec& spec) noexcept {
  spec = {};
  if (tensor == nullptr) return {};
  if (tensor->dtype.lanes != 1) {
    return error(Code::invalid_argument, name, "%s has dtype lanes %d; they must be 1", name, tensor->dtype.lanes);
  }
  const Dtype dtype = dtype_of(tensor->dtype);
  if (dtype == Dtype::none) {
    return error(Code::invalid_argument, name, "%s has DLPack dtype code %d with %d bits, which Tandem doesn't know",
                 name, tensor->dtype.code, tensor->dtype.bits);
  }
  Device device;
  if (Status status = device_of(name, tensor->device, device); !status.ok()) return status;
  if (tensor->ndim < 1 || tensor->ndim > TensorSpec::max_rank) {
    return error(Code::invalid_argument, name, "%s has ndim %d; it must be 1 to %d", name, tensor->ndim,
                 TensorSpec::max_rank);
  }
  if (tensor->shape == nullptr) return error(Code::invalid_argument, name, "shape of %s is null", name);
  spec = row_major(dtype, device, tensor->shape, tensor->ndim);
  if (tensor->strides != nullptr) std::copy_n(tensor->strides, tensor->ndim, spec.stride.begin());
  return {};
}

Status from_dlpack(const char* name, const DLTensor* tensor, TensorView& view) noexcept {
  view = {};
  if (tensor == nullptr) return {};
  if (Status status = from_dlpack(name, tensor, view.spec); !status.ok()) return status;
  if (tensor->data != nullptr) view.data = static_cast<char*>(tensor->data) + tensor->byte_offset;
  return {};
}

}  // namespace tandem::internal
