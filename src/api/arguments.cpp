// See arguments.hpp.
#include "api/arguments.hpp"

#include <algorithm>

#include "common/status.hpp"
#include "plan/spec.hpp"

namespace tandem::internal {
namespace {

constexpr size_t workspace_alignment = 256;

Status check_data(const char* name, const TensorSpec& spec, const void* data) {
  if (elements(spec) == 0) return {};
  if (data == nullptr) return error(Code::invalid_argument, name, "%s has elements, but its data is null", name);
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(spec.alignment) != 0) {
    return error(Code::invalid_argument, name,
                 "data of %s isn't aligned to %d bytes, as the plan was promised; plan with a smaller alignment", name,
                 spec.alignment);
  }
  return {};
}

Status check_unwanted(const char* name, const TensorView& view) {
  if (!view.present() && view.data == nullptr) return {};
  return error(Code::invalid_argument, name, "%s is given, but the plan was made without it", name);
}

Status check_same_spec(const char* name, const TensorSpec& planned, const TensorSpec& given) {
  if (given.dtype != planned.dtype) {
    return error(Code::invalid_argument, name, "%s has dtype %s; the plan takes %s", name, tandem::name(given.dtype),
                 tandem::name(planned.dtype));
  }
  if (given.device != planned.device) {
    return error(Code::invalid_argument, name, "%s is on %s %d; the plan takes %s %d", name, device_text(given.device),
                 given.device.index, device_text(planned.device), planned.device.index);
  }
  if (given.rank != planned.rank) {
    return error(Code::invalid_argument, name, "%s has rank %d; the plan takes rank %d", name, given.rank,
                 planned.rank);
  }
  if (!std::equal(given.size.begin(), given.size.begin() + given.rank, planned.size.begin())) {
    return error(Code::invalid_argument, name, "%s has sizes %s; the plan takes %s", name, shape_text(given).text,
                 shape_text(planned).text);
  }
  if (!same_strides(given, planned)) {
    return error(Code::invalid_argument, name, "%s has other strides than the plan was made with", name);
  }
  return {};
}

/// `assumed`: an absent spec takes the plan's, so that only the pointer need be given.
Status check_tensor(const char* name, const TensorSpec& planned, const TensorView& view, bool assumed) {
  if (!planned.present()) return check_unwanted(name, view);
  if (view.present()) {
    if (Status status = check_same_spec(name, planned, view.spec); !status.ok()) return status;
  } else if (!assumed || (view.data == nullptr && elements(planned) != 0)) {
    return error(Code::invalid_argument, name, "%s is missing; the plan takes it with sizes %s", name,
                 shape_text(planned).text);
  }
  return check_data(name, planned, view.data);
}

/// A contiguous tensor of the plan's own shape, which no spec of the problem describes: lengths, sinks and the like.
Status check_own(const char* name, const char* asked_by, TensorSpec planned, bool wanted, const TensorView& view) {
  if (!wanted) return check_unwanted(name, view);
  if (!view.present()) {
    return error(Code::invalid_argument, name, "%s is missing; the plan was made with %s", name, asked_by);
  }
  planned.alignment = element_bytes(planned.dtype);
  if (Status status = check_same_spec(name, planned, view.spec); !status.ok()) return status;
  return check_data(name, planned, view.data);
}

Status check_vectors(const Attention& attention, const Arguments& arguments) {
  const struct {
    const char* name;
    const char* asked_by;
    Dtype dtype;
    int64_t size;
    bool wanted;
    const TensorView& view;
  } vectors[] = {
      {"cu_query", "lengths.packed_query", Dtype::int32, attention.batch + 1, attention.packed_query,
       arguments.cu_query},
      {"cu_key", "lengths.packed_key", Dtype::int32, attention.batch + 1, attention.packed_key, arguments.cu_key},
      {"used_query", "lengths.used_query", Dtype::int32, attention.batch, attention.used_query, arguments.used_query},
      {"used_key", "lengths.used_key", Dtype::int32, attention.batch, attention.used_key, arguments.used_key},
      {"sinks", "sinks", Dtype::fp32, attention.query_heads, attention.sinks, arguments.sinks},
      {"out_scale", "an out of e4m3", Dtype::fp32, 1, attention.out.dtype == Dtype::e4m3, arguments.out_scale},
      {"position", "rope.positions", Dtype::int32, attention.batch, attention.rope.positions, arguments.position},
  };
  for (const auto& vector : vectors) {
    const TensorSpec planned = row_major(vector.dtype, attention.device, &vector.size, 1);
    if (Status status = check_own(vector.name, vector.asked_by, planned, vector.wanted, vector.view); !status.ok()) {
      return status;
    }
  }
  return {};
}

/// The largest magnitudes that Quantization::amax promises, one for each scale that isn't of a block.
Status check_amax(const Attention& attention, const Arguments& arguments) {
  const Quantization& quantization = attention.quantization;
  const struct {
    const char* name;
    const TensorSpec& scale;
    Granularity granularity;
    const TensorView& view;
  } tensors[] = {{"query_amax", attention.query_scale, quantization.query, arguments.query_amax},
                 {"key_amax", attention.key_scale, quantization.key, arguments.key_amax},
                 {"value_amax", attention.value_scale, quantization.value, arguments.value_amax}};
  for (const auto& tensor : tensors) {
    const bool wanted = attention.pass == Pass::quantize && quantization.amax && tensor.scale.present() &&
                        tensor.granularity != Granularity::block;
    const TensorSpec planned = row_major(Dtype::fp32, attention.device, tensor.scale.size.data(), tensor.scale.rank);
    if (Status status = check_own(tensor.name, "quantization.amax", planned, wanted, tensor.view); !status.ok()) {
      return status;
    }
  }
  return {};
}

Status check_workspace(const void* workspace, size_t given, size_t needed) {
  if (needed == 0) return {};
  if (given < needed) {
    return error(Code::invalid_argument, "workspace_bytes", "the workspace has %zu bytes; the plan needs %zu", given,
                 needed);
  }
  if (workspace == nullptr) {
    return error(Code::invalid_argument, "workspace", "workspace is null; the plan needs %zu bytes", needed);
  }
  if (reinterpret_cast<uintptr_t>(workspace) % workspace_alignment != 0) {
    return error(Code::invalid_argument, "workspace", "workspace isn't aligned to %zu bytes", workspace_alignment);
  }
  return {};
}

}  // namespace

Status check_arguments(const Attention& attention, const Arguments& arguments, const void* workspace, size_t given,
                       size_t needed) noexcept {
  const struct {
    const char* name;
    const TensorSpec& planned;
    const TensorView& view;
    bool assumed;
  } tensors[] = {
      {"query", attention.query, arguments.query, false},
      {"key", attention.key, arguments.key, false},
      {"value", attention.value, arguments.value, false},
      {"out", attention.out, arguments.out, true},
      {"lse", attention.lse, arguments.lse, true},
      {"grad_out", attention.grad_out, arguments.grad_out, false},
      {"grad_query", attention.grad_query, arguments.grad_query, false},
      {"grad_key", attention.grad_key, arguments.grad_key, false},
      {"grad_value", attention.grad_value, arguments.grad_value, false},
      {"quantized_query", attention.quantized_query, arguments.quantized_query, true},
      {"quantized_key", attention.quantized_key, arguments.quantized_key, true},
      {"quantized_value", attention.quantized_value, arguments.quantized_value, true},
      {"query_scale", attention.query_scale, arguments.query_scale, true},
      {"key_scale", attention.key_scale, arguments.key_scale, true},
      {"value_scale", attention.value_scale, arguments.value_scale, true},
      {"value_mean", attention.value_mean, arguments.value_mean, true},
      {"rope_cos", attention.rope_cos, arguments.rope_cos, false},
      {"rope_sin", attention.rope_sin, arguments.rope_sin, false},
  };
  for (const auto& tensor : tensors) {
    if (Status status = check_tensor(tensor.name, tensor.planned, tensor.view, tensor.assumed); !status.ok()) {
      return status;
    }
  }
  if (Status status = check_vectors(attention, arguments); !status.ok()) return status;
  if (Status status = check_amax(attention, arguments); !status.ok()) return status;
  return check_workspace(workspace, given, needed);
}

}  // namespace tandem::internal
