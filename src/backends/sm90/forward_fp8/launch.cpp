// Runs an 8-bit forward plan on a device.
#include "backends/sm90/forward_fp8/launch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "backends/sm90/forward/fill.hpp"
#include "backends/sm90/forward_fp8/params.hpp"
#include "common/quantized.hpp"
#include "common/status.hpp"
#include "plan/forward_fp8_sm90.hpp"
#include "plan/spec.hpp"

namespace tandem::internal::sm90::forward_fp8 {
namespace {

/// The map of packed values, see Params.
TensorMapSpec packed_value_map(const TensorSpec& spec, void* data, int tile_key, int head_dim) noexcept {
  // (batch,) head, group, channel, key of the group; without a batch, one of it.
  const int first = spec.rank - 5;
  const auto size = [&](int i) {
    return i < 0 ? uint64_t{1} : std::max<uint64_t>(1, spec.size[static_cast<size_t>(i)]);
  };
  const auto stride = [&](int i) {
    return i < 0 || spec.size[static_cast<size_t>(i)] <= 1 ? uint64_t{16}
                                                           : static_cast<uint64_t>(spec.stride[static_cast<size_t>(i)]);
  };
  TensorMapSpec map;
  map.base = data;
  map.dtype = Dtype::e4m3;
  map.rank = 5;
  map.size[0] = 8 * value_group;
  map.size[1] = std::max<uint64_t>(1, size(first + 3) / 8);
  map.stride_bytes[0] = 8 * value_group;
  for (int i = 0; i < 3; ++i) {
    map.size[2 + i] = size(first + 2 - i);
    map.stride_bytes[1 + i] = stride(first + 2 - i);
  }
  map.box[0] = 8 * value_group;
  map.box[1] = static_cast<uint32_t>(head_dim / 8);
  map.box[2] = static_cast<uint32_t>(tile_key / value_group);
  map.box[3] = map.box[4] = 1;
  map.swizzle = ptx::Swizzle::none;
  if (spec.size[static_cast<size_t>(first + 2)] > 0) return map;
  // No dimension can be 0: for a tensor without groups 16 bytes of another one are read, which Params::patch_values has
  // cleared.
  std::fill_n(map.size, map.rank, uint64_t{1});
  std::fill_n(map.stride_bytes, map.rank - 1, uint64_t{16});
  map.size[0] = value_group;
  return map;
}

/// A tensor's scales, for a kernel that takes `tile` rows at once; what a granularity doesn't step over has stride 0.
Scales scales_of(const TensorSpec& spec, const TensorView& view, Granularity granularity, int rows, int tile,
                 bool packed) {
  Scales scales{static_cast<const float*>(view.data), 0, 0, 0, std::max(rows, 1), 1};
  if (granularity == Granularity::tensor) return scales;
  const bool by_block = granularity == Granularity::block;
  const size_t head = by_block && packed ? 0 : 1;
  if (head == 1) scales.batch = spec.stride[0];
  scales.head = spec.stride[head];
  if (!by_block) return scales;
  scales.block = spec.stride[head + 1];
  scales.tile_of_block = static_cast<float>(tile) / static_cast<float>(rows);
  return scales;
}

class ForwardFp8Executable final : public Executable {
 public:
  ForwardFp8Executable(const Attention& attention, const ForwardFp8Plan& plan, std::shared_ptr<Device> device,
                       KernelHandle kernel)
      : Executable(attention), plan_(plan), device_(std::move(device)), kernel_(kernel) {}

  size_t workspace_bytes() const noexcept override { return plan_.workspace_bytes; }
  std::string describe() const override { return internal::describe(plan_, attention()); }
  Status copy_to_host(void* destination, const void* source, size_t bytes, void* stream) const noexcept override {
    return device_->copy_to_host(destination, source, bytes, stream);
  }

  Status run(const Arguments& arguments, void* workspace, void* stream) const noexcept override {
    if (plan_.empty) return {};
    const Attention& a = attention();
    Params params{};
    if (Status status = encode(params, arguments); !status.ok()) return status;
    forward::fill(params, a, plan_, arguments, a.query, a.key);
    fill(params, arguments);
    if (plan_.dynamic) {
      params.tile_counter = reinterpret_cast<int32_t*>(static_cast<uint8_t*>(workspace) + plan_.counter_at);
      if (Status status = device_->clear(params.tile_counter, sizeof(int32_t), stream); !status.ok()) return status;
    }
    const Config& config = plan_.variant->config;
    return device_->launch({.kernel = kernel_,
                            .grid = plan_.grid,
                            .threads = config.threads(),
                            .shared_bytes = config.shared_bytes(),
                            .parameters = &params,
                            .parameter_bytes = sizeof params,
                            .stream = stream});
  }

 private:
  Status encode(Params& params, const Arguments& arguments) const noexcept {
    const Attention& a = attention();
    const Config& c = plan_.variant->config;
    // An empty tensor's pointer may be null, which TMA doesn't take; nothing of it is read.
    const auto place = [&](void* data) { return data != nullptr ? data : arguments.out.data; };
    const auto map = [&](const TensorSpec& spec, void* data, const Side& side, int rows, ptx::TensorMap& target) {
      const int bytes = element_bytes(spec.dtype);
      const int chunk = static_cast<int>(ptx::widest_swizzle(c.head_dim * bytes)) / bytes;
      const auto columns = static_cast<int>(spec.size[static_cast<size_t>(spec.rank - 1)]);
      return device_->encode(attention_map(spec, place(data), side, columns, chunk, rows), target);
    };
    Status status = map(a.query, arguments.query.data, plan_.query_side, 64, params.query);
    if (status.ok()) status = map(a.key, arguments.key.data, plan_.key_side, c.tile_key, params.key);
    if (status.ok()) status = map(a.out, arguments.out.data, plan_.query_side, Config::stored_rows, params.out);
    if (!status.ok()) return status;
    if (c.transposes()) return map(a.value, arguments.value.data, plan_.key_side, c.tile_key, params.value);
    const bool no_groups = a.value.size[static_cast<size_t>(a.value.rank - 3)] == 0;
    void* value = no_groups ? arguments.query.data : place(arguments.value.data);
    return device_->encode(packed_value_map(a.value, value, c.tile_key, c.head_dim), params.value);
  }

  void fill(Params& params, const Arguments& arguments) const noexcept {
    const Attention& a = attention();
    const Quantization& q = a.quantization;
    const int tile = plan_.variant->config.tile_key;
    params.query_scale = scales_of(a.query_scale, arguments.query_scale, q.query, q.query_rows, 64, a.packed_query);
    params.key_scale = scales_of(a.key_scale, arguments.key_scale, q.key, q.key_rows, tile, a.packed_key);
    params.value_scale = scales_of(a.value_scale, arguments.value_scale, q.value, q.value_rows, tile, a.packed_key);
    if (q.value_mean) {
      params.value_mean = static_cast<const float*>(arguments.value_mean.data);
      params.mean_batch_stride = a.value_mean.stride[0];
      params.mean_head_stride = a.value_mean.stride[1];
      params.mean_channel_stride = a.value_mean.stride[2];
    }
    params.inverse_group = 1.0f / static_cast<float>(a.group());
    params.least_scale = std::copysign(std::numeric_limits<float>::min(), params.scale_log2);
    params.out_dtype = a.out.dtype;
    params.out_scale = a.out.dtype == Dtype::e4m3 ? static_cast<const float*>(arguments.out_scale.data) : nullptr;
    params.value_dim = static_cast<int32_t>(a.value_dim);
    params.promote_every = plan_.promote_every > 0 ? plan_.promote_every : std::numeric_limits<int32_t>::max() / 2;
    params.scales_by_block = q.key == Granularity::block || q.value == Granularity::block;
    params.patch_values = a.packed_key || a.used_key || a.max_key == 0;
  }

  const ForwardFp8Plan plan_;
  const std::shared_ptr<Device> device_;
  const KernelHandle kernel_;
};

}  // namespace

ExecutableResult prepare(const Attention& problem, std::shared_ptr<Device> device) noexcept {
  Attention attention = problem;
  const Result<ForwardFp8Plan> plan = plan_forward_fp8_sm90(attention, device->traits());
  if (!plan) return plan.status();
  const Variant& variant = *plan->variant;
  const auto kernel = device->load(variant.name, variant.config.shared_bytes());
  if (!kernel) return kernel.status();
  try {
    return std::shared_ptr<const Executable>(
        std::make_shared<ForwardFp8Executable>(attention, *plan, std::move(device), *kernel));
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, "", "out of memory while making a plan");
  }
}

}  // namespace tandem::internal::sm90::forward_fp8
