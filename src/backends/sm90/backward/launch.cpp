// Runs a backward plan on a device.
#include "backends/sm90/backward/launch.hpp"

#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/copy/launch.hpp"
#include "backends/sm90/forward/fill.hpp"
#include "common/status.hpp"
#include "plan/backward_sm90.hpp"
#include "plan/spec.hpp"

namespace tandem::internal::sm90::backward {
namespace {

using copy::Placed;

struct Kernels {
  KernelHandle prepare, main, queries, finish, copy;  // queries or finish is null
};

class BackwardExecutable final : public Executable {
 public:
  BackwardExecutable(const Attention& attention, const BackwardPlan& plan, std::shared_ptr<Device> device,
                     const Kernels& kernels)
      : Executable(attention), plan_(plan), device_(std::move(device)), kernels_(kernels) {}

  size_t workspace_bytes() const noexcept override { return plan_.workspace_bytes; }
  std::string describe() const override { return internal::describe(plan_, attention()); }
  Status copy_to_host(void* destination, const void* source, size_t bytes, void* stream) const noexcept override {
    return device_->copy_to_host(destination, source, bytes, stream);
  }

  Status run(const Arguments& arguments, void* workspace, void* stream) const noexcept override {
    if (plan_.no_queries && plan_.no_keys) return {};
    const Attention& a = attention();
    const Run run{arguments, static_cast<uint8_t*>(workspace), stream};
    Tensors t{place(run, a.query, arguments.query, plan_.query),
              place(run, a.key, arguments.key, plan_.key),
              place(run, a.value, arguments.value, plan_.value),
              place(run, a.out, arguments.out, plan_.out),
              place(run, a.grad_out, arguments.grad_out, plan_.grad_out),
              place(run, a.grad_query, arguments.grad_query, plan_.grad_query),
              place(run, a.grad_key, arguments.grad_key, plan_.grad_key),
              place(run, a.grad_value, arguments.grad_value, plan_.grad_value)};
    Status status = bring_inputs(run, t);
    if (status.ok() && !plan_.no_queries) status = launch_prepare(run, t);
    if (status.ok() && !plan_.no_queries && kernels_.queries != nullptr) status = launch_queries(run, t);
    if (status.ok() && plan_.tiles > 0) status = launch_main(run, t);
    if (status.ok() && !plan_.no_queries && kernels_.finish != nullptr) status = launch_finish(run, t);
    if (status.ok()) status = bring_outputs(run, t);
    return status;
  }

 private:
  struct Run {
    const Arguments& arguments;
    uint8_t* workspace;
    void* stream;
  };
  struct Tensors {
    Placed query, key, value, out, grad_out, grad_query, grad_key, grad_value;
  };

  static Placed place(const Run& run, const TensorSpec& spec, const TensorView& view, const BackwardPlan::Copy& copy) {
    if (copy.reason == nullptr) return {spec, view.data};
    return copy::in_workspace(spec, run.workspace + copy.at);
  }
  Status bring_inputs(const Run& run, const Tensors& t) const noexcept {
    const Attention& a = attention();
    Status status;
    const auto bring = [&](const BackwardPlan::Copy& copy, const TensorSpec& spec, const TensorView& view,
                           const Placed& placed, const Side& side) {
      if (copy.reason == nullptr || !status.ok()) return;
      status = copy::launch(*device_, kernels_.copy, {spec, view.data}, placed, side, run.stream);
    };
    bring(plan_.query, a.query, run.arguments.query, t.query, plan_.query_side);
    bring(plan_.key, a.key, run.arguments.key, t.key, plan_.key_side);
    bring(plan_.value, a.value, run.arguments.value, t.value, plan_.key_side);
    bring(plan_.out, a.out, run.arguments.out, t.out, plan_.query_side);
    bring(plan_.grad_out, a.grad_out, run.arguments.grad_out, t.grad_out, plan_.query_side);
    return status;
  }
  Status bring_outputs(const Run& run, const Tensors& t) const noexcept {
    const Attention& a = attention();
    Status status;
    const auto bring = [&](const BackwardPlan::Copy& copy, const TensorSpec& spec, const TensorView& view,
                           const Placed& placed, const Side& side) {
      if (copy.reason == nullptr || !status.ok()) return;
      status = copy::launch(*device_, kernels_.copy, placed, {spec, view.data}, side, run.stream);
    };
    bring(plan_.grad_query, a.grad_query, run.arguments.grad_query, t.grad_query, plan_.query_side);
    bring(plan_.grad_key, a.grad_key, run.arguments.grad_key, t.grad_key, plan_.key_side);
    bring(plan_.grad_value, a.grad_value, run.arguments.grad_value, t.grad_value, plan_.key_side);
    return status;
  }

  Rows query_rows(const Run& run) const noexcept {
    const Attention& a = attention();
    return {a.packed_query ? static_cast<const int32_t*>(run.arguments.cu_query.data) : nullptr,
            a.used_query ? static_cast<const int32_t*>(run.arguments.used_query.data) : nullptr,
            static_cast<int32_t>(a.total_query),
            static_cast<int32_t>(a.max_query),
            static_cast<int32_t>(plan_.query_pitch),
            plan_.query_side.ragged};
  }
  Rows key_rows(const Run& run) const noexcept {
    const Attention& a = attention();
    return {a.packed_key ? static_cast<const int32_t*>(run.arguments.cu_key.data) : nullptr,
            a.used_key ? static_cast<const int32_t*>(run.arguments.used_key.data) : nullptr,
            static_cast<int32_t>(a.total_key),
            static_cast<int32_t>(a.max_key),
            static_cast<int32_t>(plan_.key_pitch),
            plan_.key_side.ragged};
  }
  float* floats(const Run& run, size_t at) const noexcept { return reinterpret_cast<float*>(run.workspace + at); }
  int32_t* flags(const Run& run) const noexcept {
    return plan_.query_variant == nullptr ? reinterpret_cast<int32_t*>(run.workspace + plan_.flags_at) : nullptr;
  }
  int32_t* counter(const Run& run) const noexcept {
    return plan_.dynamic ? reinterpret_cast<int32_t*>(run.workspace + plan_.counter_at) : nullptr;
  }
  int32_t* query_counter(const Run& run) const noexcept {
    return plan_.queries.dynamic ? reinterpret_cast<int32_t*>(run.workspace + plan_.queries.counter_at) : nullptr;
  }
  static Layout layout(const Strides& s) noexcept { return {s.batch, s.row, s.head}; }
  int query_grid() const noexcept {
    return static_cast<int>(plan_.blocks.per_head * static_cast<int32_t>(attention().query_heads));
  }

  template <class P>
  Status launch(KernelHandle kernel, int grid, int threads, int shared_bytes, const P& params,
                const Run& run) const noexcept {
    return device_->launch({.kernel = kernel,
                            .grid = grid,
                            .threads = threads,
                            .shared_bytes = shared_bytes,
                            .parameters = &params,
                            .parameter_bytes = sizeof params,
                            .stream = run.stream,
                            .overlaps_previous = kernel != kernels_.prepare && !plan_.no_queries});
  }

  Status launch_prepare(const Run& run, const Tensors& t) const noexcept {
    const Attention& a = attention();
    PrepareParams params{};
    params.out = t.out.data;
    params.grad_out = t.grad_out.data;
    params.lse = static_cast<const float*>(run.arguments.lse.data);
    params.out_layout = layout(strides(t.out.spec));
    params.grad_out_layout = layout(strides(t.grad_out.spec));
    params.lse_layout = layout(lse_strides(a.lse));
    params.statistics = floats(run, plan_.statistics_at);
    params.flags = flags(run);
    params.tile_counter = counter(run);
    params.query_tile_counter = query_counter(run);
    params.query_rows = query_rows(run);
    params.blocks = plan_.blocks;
    params.batch = static_cast<int32_t>(a.batch);
    params.value_dim = static_cast<int32_t>(a.value_dim);
    params.is_bf16 = a.dtype == Dtype::bf16;
    return launch(kernels_.prepare, query_grid(), PrepareParams::threads, 0, params, run);
  }

  Status map(const Run& run, const Placed& tensor, const Side& side, int rows, ptx::TensorMap& target) const noexcept {
    // An empty tensor's pointer may be null, which TMA doesn't take; nothing of it is read.
    void* data = tensor.data != nullptr ? tensor.data : run.workspace;
    const auto columns = static_cast<int>(tensor.spec.size[static_cast<size_t>(tensor.spec.rank - 1)]);
    return device_->encode(attention_map(tensor.spec, data, side, columns, 64, rows), target);
  }

  Status launch_main(const Run& run, const Tensors& t) const noexcept {
    const Attention& a = attention();
    const Config& c = plan_.variant->config;
    Params params{};
    const int tile = c.tile_key();
    Status status = map(run, t.query, plan_.query_side, c.tile_query, params.query);
    if (status.ok()) status = map(run, t.grad_out, plan_.query_side, c.tile_query, params.grad_out);
    if (status.ok()) status = map(run, t.key, plan_.key_side, tile, params.key);
    if (status.ok()) status = map(run, t.value, plan_.key_side, tile, params.value);
    if (status.ok()) status = map(run, t.grad_key, plan_.key_side, 64, params.grad_key);
    if (status.ok()) status = map(run, t.grad_value, plan_.key_side, 64, params.grad_value);
    if (!status.ok()) return status;
    params.accumulator = floats(run, plan_.accumulator_at);
    params.statistics = floats(run, plan_.statistics_at);
    params.flags = flags(run);
    params.query_rows = query_rows(run);
    params.key_rows = key_rows(run);
    params.blocks = plan_.blocks;
    params.batch = static_cast<int32_t>(a.batch);
    params.key_heads = static_cast<int32_t>(a.key_heads);
    params.group = static_cast<int32_t>(a.group());
    params.has_diagonal = a.diagonal.has_value();
    params.diagonal = a.diagonal.value_or(0);
    params.deterministic = a.options.deterministic;
    params.upwards = plan_.upwards;
    params.scan = plan_.scan;
    params.window = a.window;
    params.order = plan_.order;
    params.tiles = plan_.tiles;
    params.tile_counter = counter(run);
    params.scale = a.scale;
    params.scale_log2 = a.scale_log2();
    return launch(kernels_.main, plan_.grid, Config::threads, c.shared_bytes(), params, run);
  }

  Status launch_queries(const Run& run, const Tensors& t) const noexcept {
    const ForwardSchedule& schedule = plan_.queries;
    const QueryConfig& c = plan_.query_variant->config;
    QueryParams params{};
    Status status = map(run, t.query, schedule.query_side, 64, params.query);
    if (status.ok()) status = map(run, t.grad_out, schedule.query_side, 64, params.grad_out);
    if (status.ok()) status = map(run, t.grad_query, schedule.query_side, 64, params.out);
    if (status.ok()) status = map(run, t.key, schedule.key_side, QueryConfig::tile_key, params.key);
    if (status.ok()) status = map(run, t.value, schedule.key_side, QueryConfig::tile_key, params.value);
    if (!status.ok()) return status;
    forward::fill(params, attention(), schedule, run.arguments, t.query.spec, t.key.spec);
    params.tile_counter = query_counter(run);
    params.statistics = floats(run, plan_.statistics_at);
    params.blocks = plan_.blocks;
    params.scale = attention().scale;
    return launch(kernels_.queries, schedule.grid, QueryConfig::threads, c.shared_bytes(), params, run);
  }

  Status launch_finish(const Run& run, const Tensors& t) const noexcept {
    const Attention& a = attention();
    FinishParams params{};
    params.accumulator = floats(run, plan_.accumulator_at);
    params.flags = flags(run);
    params.grad_query = t.grad_query.data;
    params.layout = layout(strides(t.grad_query.spec));
    params.query_rows = query_rows(run);
    params.blocks = plan_.blocks;
    params.batch = static_cast<int32_t>(a.batch);
    params.head_dim = static_cast<int32_t>(a.head_dim);
    params.accumulator_dim = plan_.variant->config.head_dim;
    params.scale = a.scale;
    params.is_bf16 = a.dtype == Dtype::bf16;
    return launch(kernels_.finish, query_grid(), FinishParams::threads, FinishParams::shared_bytes, params, run);
  }

  const BackwardPlan plan_;
  const std::shared_ptr<Device> device_;
  const Kernels kernels_;
};

}  // namespace

ExecutableResult prepare(const Attention& attention, std::shared_ptr<Device> device) noexcept {
  return guarded([&]() -> ExecutableResult {
    const Result<BackwardPlan> plan = plan_backward_sm90(attention, device->traits());
    if (!plan) return plan.status();
    const Config& config = plan->variant->config;
    const auto before = device->load(prepare_kernel, 0);
    if (!before) return before.status();
    const auto main = device->load(plan->variant->name, config.shared_bytes());
    if (!main) return main.status();
    const QueryVariant* by_queries = plan->query_variant;
    const auto after = by_queries != nullptr ? device->load(by_queries->name, by_queries->config.shared_bytes())
                                             : device->load(finish_kernel, FinishParams::shared_bytes);
    if (!after) return after.status();
    const auto copy = device->load(copy::kernel_name, 0);
    if (!copy) return copy.status();
    return std::shared_ptr<const Executable>(
        std::make_shared<BackwardExecutable>(attention, *plan, std::move(device),
                                             Kernels{*before, *main, by_queries != nullptr ? *after : nullptr,
                                                     by_queries != nullptr ? nullptr : *after, *copy}));
  });
}

}  // namespace tandem::internal::sm90::backward
