// Runs a forward plan on a device.
#include "backends/sm90/forward/launch.hpp"

#include <algorithm>
#include <new>

#include "backends/sm90/copy/launch.hpp"
#include "backends/sm90/forward/fill.hpp"
#include "backends/sm90/forward/params.hpp"
#include "common/status.hpp"
#include "plan/forward_sm90.hpp"

namespace tandem::internal::sm90::forward {
namespace {

using copy::Placed;

class ForwardExecutable final : public Executable {
 public:
  ForwardExecutable(const Attention& attention, const ForwardPlan& plan, std::shared_ptr<Device> device,
                    KernelHandle kernel, KernelHandle copy)
      : Executable(attention), plan_(plan), device_(std::move(device)), kernel_(kernel), copy_(copy) {}

  size_t workspace_bytes() const noexcept override { return plan_.workspace_bytes; }
  std::string describe() const override { return internal::describe(plan_, attention()); }
  Status copy_to_host(void* destination, const void* source, size_t bytes, void* stream) const noexcept override {
    return device_->copy_to_host(destination, source, bytes, stream);
  }

  Status run(const Arguments& arguments, void* workspace, void* stream) const noexcept override {
    if (plan_.empty) return {};
    auto* base = static_cast<uint8_t*>(workspace);
    const Attention& a = attention();
    // The tensors as the kernel sees them: where they lie, or contiguous in the workspace.
    Placed query{a.query, arguments.query.data}, key{a.key, arguments.key.data}, value{a.value, arguments.value.data},
        out{a.out, arguments.out.data};
    Status status;
    const auto bring = [&](const char* reason, Placed& tensor, size_t at, const Side& side) {
      if (reason == nullptr || !status.ok()) return;
      const Placed original = tensor;
      tensor = copy::in_workspace(original.spec, base + at);
      status = copy::launch(*device_, copy_, original, tensor, side, stream);
    };
    bring(plan_.copy_query, query, plan_.query_at, plan_.query_side);
    bring(plan_.copy_key, key, plan_.key_at, plan_.key_side);
    bring(plan_.copy_value, value, plan_.value_at, plan_.key_side);
    const Placed original_out = out;
    if (plan_.copy_out != nullptr) out = copy::in_workspace(a.out, base + plan_.out_at);
    if (!status.ok()) return status;

    Params params{};
    status = encode(params, query, key, value, out);
    if (!status.ok()) return status;
    fill(params, a, plan_, arguments, query.spec, key.spec);
    if (plan_.dynamic) {
      params.tile_counter = reinterpret_cast<int32_t*>(base + plan_.counter_at);
      status = device_->clear(params.tile_counter, sizeof(int32_t), stream);
      if (!status.ok()) return status;
    }
    const Config& config = plan_.variant->config;
    status = device_->launch({.kernel = kernel_,
                              .grid = plan_.grid,
                              .threads = config.threads(),
                              .shared_bytes = config.shared_bytes(),
                              .parameters = &params,
                              .parameter_bytes = sizeof params,
                              .stream = stream});
    if (status.ok() && plan_.copy_out != nullptr)
      status = copy::launch(*device_, copy_, out, original_out, plan_.query_side, stream);
    return status;
  }

 private:
  Status encode(Params& params, const Placed& query, const Placed& key, const Placed& value,
                const Placed& out) const noexcept {
    const Config& c = plan_.variant->config;
    const auto map = [&](const Placed& tensor, const Side& side, int compiled, int rows, ptx::TensorMap& target) {
      const int chunk = compiled % 64 == 0 ? 64 : 32;
      // An empty tensor's pointer may be null, which TMA doesn't take; nothing of it is read.
      void* data = tensor.data != nullptr ? tensor.data : out.data;
      const auto columns = static_cast<int>(tensor.spec.size[tensor.spec.rank - 1]);
      return device_->encode(attention_map(tensor.spec, data, side, columns, chunk, rows), target);
    };
    Status status = map(query, plan_.query_side, c.head_dim, 64, params.query);
    if (status.ok()) status = map(key, plan_.key_side, c.head_dim, c.tile_key, params.key);
    if (status.ok()) status = map(value, plan_.key_side, c.value_dim, c.tile_key, params.value);
    if (status.ok()) status = map(out, plan_.query_side, c.value_dim, 64, params.out);
    return status;
  }

  const ForwardPlan plan_;
  const std::shared_ptr<Device> device_;
  const KernelHandle kernel_, copy_;
};

}  // namespace

ExecutableResult prepare(const Attention& attention, std::shared_ptr<Device> device) noexcept {
  const Result<ForwardPlan> plan = plan_forward_sm90(attention, device->traits());
  if (!plan) return plan.status();
  const forward::Variant& variant = *plan->variant;
  const auto kernel = device->load(variant.name, variant.cubin, variant.config.shared_bytes());
  if (!kernel) return kernel.status();
  const auto copy = device->load(copy::kernel_name, 0);
  if (!copy) return copy.status();
  try {
    return std::shared_ptr<const Executable>(
        std::make_shared<ForwardExecutable>(attention, *plan, std::move(device), *kernel, *copy));
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, "", "out of memory while making a plan");
  }
}

}  // namespace tandem::internal::sm90::forward
