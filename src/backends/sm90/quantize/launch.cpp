// Runs a quantiser's plan on a device.
#include "backends/sm90/quantize/launch.hpp"

#include <bit>

#include "common/status.hpp"
#include "plan/quantize_sm90.hpp"
#include "plan/spec.hpp"

namespace tandem::internal::sm90::quantize {
namespace {

using Operand = QuantizePlan::Operand;
using PassPlan = QuantizePlan::Pass;

struct Kernels {
  KernelHandle rows, value, columns, combine;
};

/// A tensor's specs and arguments.
struct Tensor {
  const TensorSpec &source_spec, &target_spec, &scale_spec;
  const TensorView &source, &target, &scale, &amax;
  const TensorView &cumulative, &used;
  Granularity granularity;
  int64_t total, longest;
  bool of_query, packed, has_used;
};

std::array<Tensor, 3> tensors(const Attention& a, const Arguments& r) {
  const Quantization& q = a.quantization;
  return {{{a.query, a.quantized_query, a.query_scale, r.query, r.quantized_query, r.query_scale, r.query_amax,
            r.cu_query, r.used_query, q.query, a.total_query, a.max_query, true, a.packed_query, a.used_query},
           {a.key, a.quantized_key, a.key_scale, r.key, r.quantized_key, r.key_scale, r.key_amax, r.cu_key, r.used_key,
            q.key, a.total_key, a.max_key, false, a.packed_key, a.used_key},
           {a.value, a.quantized_value, a.value_scale, r.value, r.quantized_value, r.value_scale, r.value_amax,
            r.cu_key, r.used_key, q.value, a.total_key, a.max_key, false, a.packed_key, a.used_key}}};
}

Layout layout(const Strides& s) { return {s.batch, s.row, s.head}; }

bool aligned(const void* data, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(data) % bytes == 0; }
bool multiples(const Strides& s, int64_t of) { return s.batch % of == 0 && s.row % of == 0 && s.head % of == 0; }

/// Strides by what scales depend on: (1), (batch, heads), (batch, heads, blocks) or packed (heads, blocks).
Scales scales(const TensorSpec& spec, void* data, Granularity granularity, bool packed) {
  auto* floats = static_cast<float*>(data);
  if (granularity == Granularity::tensor) return {floats, 0, 0, 0};
  if (granularity == Granularity::head) return {floats, spec.stride[0], spec.stride[1], 0};
  if (packed) return {floats, 0, spec.stride[0], spec.stride[1]};
  return {floats, spec.stride[0], spec.stride[1], spec.stride[2]};
}

class QuantizeExecutable final : public Executable {
 public:
  QuantizeExecutable(const Attention& attention, const QuantizePlan& plan, std::shared_ptr<Device> device,
                     const Kernels& kernels)
      : Executable(attention), plan_(plan), device_(std::move(device)), kernels_(kernels) {
    if (plan.hadamard > 1)
      for (int dim = 0; dim < attention.head_dim; ++dim)
        if (negative_sign(attention.quantization.sign_seed, dim))
          signs_[dim / piece] |= 1u << ((dim % 2 == 0 ? 15 : 31) - dim % piece / 2);
  }

  size_t workspace_bytes() const noexcept override { return plan_.workspace_bytes; }
  std::string describe() const override { return internal::describe(plan_, attention()); }
  Status copy_to_host(void* destination, const void* source, size_t bytes, void* stream) const noexcept override {
    return device_->copy_to_host(destination, source, bytes, stream);
  }

  Status run(const Arguments& arguments, void* workspace, void* stream) const noexcept override {
    Run run{arguments, static_cast<uint8_t*>(workspace), stream};
    const std::array<Tensor, 3> all = tensors(attention(), arguments);
    Status status;
    for (size_t i = 0; i < all.size() && status.ok(); ++i)
      if (plan_.operands[i].present) status = run_operand(run, plan_.operands[i], all[i], i == QuantizePlan::value);
    return status;
  }

 private:
  struct Run {
    const Arguments& arguments;
    uint8_t* workspace;
    void* stream;
    bool first = true;
    float* floats(size_t at) const { return reinterpret_cast<float*>(workspace + at); }
  };

  Status run_operand(Run& run, const Operand& o, const Tensor& t, bool is_value) const noexcept {
    const bool means = is_value && attention().searches_mean();
    Status status;
    if (means) status = find_means(run, o, t);
    if (status.ok() && o.search.grid > 0) status = launch_rows(run, o, t, o.search, Search::none, is_value);
    if (status.ok() && o.scales_grid > 0) status = combine_scales(run, o, t, means);
    const Search search = t.granularity == Granularity::block ? Search::own : Search::known;
    if (!status.ok() || o.quantize.grid == 0) return status;
    if (o.groups) return launch_groups(run, o, t, search);
    return launch_rows(run, o, t, o.quantize, search, is_value);
  }

  Rows rows(const Tensor& t) const noexcept {
    return {t.packed ? static_cast<const int32_t*>(t.cumulative.data) : nullptr,
            t.has_used ? static_cast<const int32_t*>(t.used.data) : nullptr,
            static_cast<int32_t>(t.total),
            static_cast<int32_t>(t.longest),
            0,
            true};
  }

  Source source(const Operand& o, const Tensor& t, const PassPlan& pass) const noexcept {
    const Strides s = strides(t.source_spec);
    return {static_cast<const uint16_t*>(t.source.data),      layout(s), rows(t),   pass.blocks,
            static_cast<int32_t>(attention().batch),          o.heads,   o.columns, t.source_spec.dtype == Dtype::bf16,
            aligned(t.source.data, 16) && multiples(s, piece)};
  }

  Scaling scaling(const Run& run, const Operand& o, const Tensor& t, Search search, bool is_value) const noexcept {
    const Attention& a = attention();
    Scaling s{};
    s.search = search;
    s.scales = scales(t.scale_spec, t.scale.data, t.granularity, t.packed);
    s.found = run.floats(o.largest_at);
    if (is_value && a.quantization.value_mean) {
      s.mean = static_cast<const float*>(run.arguments.value_mean.data);
      s.mean_batch = a.value_mean.stride[0];
      s.mean_head = a.value_mean.stride[1];
    }
    s.largest = t.target_spec.dtype == Dtype::int8 ? largest_int8 : largest_e4m3;
    s.norm = is_value ? 1 : hadamard_norm(plan_.hadamard);
    s.power_of_two = is_value && t.granularity == Granularity::block;
    return s;
  }

  Rotation rotation(const Run& run, int lanes) const noexcept {
    const Attention& a = attention();
    const auto *cos = static_cast<const float*>(run.arguments.rope_cos.data),
               *sin = static_cast<const float*>(run.arguments.rope_sin.data);
    const int64_t cos_row = a.rope_cos.stride[0], sin_row = a.rope_sin.stride[0];
    const int of_lanes = 2 * piece * lanes;  // dims whose halves are a piece of a thread each
    const bool whole =
        a.rope.interleaved ? a.rope.dims % piece == 0 : a.rope.dims == of_lanes || a.rope.dims == 2 * of_lanes;
    return {cos,
            sin,
            a.rope.positions ? static_cast<const int32_t*>(run.arguments.position.data) : nullptr,
            cos_row,
            sin_row,
            a.rope.dims,
            static_cast<int32_t>(a.rope_cos.size[0]),
            a.rope.interleaved,
            whole && aligned(cos, 16) && aligned(sin, 16) && cos_row % 4 == 0 && sin_row % 4 == 0};
  }

  template <class P>
  Status launch(Run& run, KernelHandle kernel, int64_t grid, int threads, int shared_bytes,
                const P& params) const noexcept {
    const bool overlaps = !run.first;
    run.first = false;
    return device_->launch({.kernel = kernel,
                            .grid = static_cast<int>(grid),
                            .threads = threads,
                            .shared_bytes = shared_bytes,
                            .parameters = &params,
                            .parameter_bytes = sizeof params,
                            .stream = run.stream,
                            .overlaps_previous = overlaps});
  }

  Status launch_rows(Run& run, const Operand& o, const Tensor& t, const PassPlan& pass, Search search,
                     bool is_value) const noexcept {
    RowsParams params{};
    params.source = source(o, t, pass);
    params.scaling = scaling(run, o, t, search, is_value);
    if (!is_value && attention().rope.dims > 0) params.rotation = rotation(run, o.lanes);
    // A search of a packed value's scales writes nothing, and its target has no rows.
    if (search != Search::none) {
      const Strides s = strides(t.target_spec);
      params.target = static_cast<uint8_t*>(t.target.data);
      params.target_layout = layout(s);
      params.target_wide = aligned(t.target.data, 8) && multiples(s, 8);
      params.target_pairs = aligned(t.target.data, 16) && multiples(s, 16) && o.columns % 16 == 0 && o.lanes > 1;
    }
    params.hadamard = is_value ? 1 : plan_.hadamard;
    for (size_t i = 0; i < std::size(signs_); ++i) params.signs[i] = signs_[i];
    params.lane_bits = std::countr_zero(static_cast<unsigned>(o.lanes));
    params.rows_at_once = pass.at_once;
    params.parts = pass.parts;
    params.heads_at_once = pass.heads_at_once;
    params.integer = t.target_spec.dtype == Dtype::int8;
    return launch(run, kernels_.rows, pass.grid, pass.threads, rows_shared_bytes, params);
  }

  Status launch_groups(Run& run, const Operand& o, const Tensor& t, Search search) const noexcept {
    const TensorSpec& target = t.target_spec;
    const size_t head = t.packed ? 0 : 1;  // the dimension of heads; groups are the next one
    ValueParams params{};
    params.source = source(o, t, o.quantize);
    params.source.wide = aligned(t.source.data, 4) && multiples(strides(t.source_spec), 2);
    params.scaling = scaling(run, o, t, search, true);
    params.target = static_cast<uint8_t*>(t.target.data);
    params.target_batch = t.packed ? 0 : target.stride[0];
    params.target_head = target.stride[head];
    params.target_group = target.stride[head + 1];
    params.groups_at_once = o.quantize.at_once;
    params.parts = o.quantize.parts;
    params.heads_at_once = o.quantize.heads_at_once;
    params.packed_sequences = t.packed;
    params.target_wide = aligned(t.target.data, 16) && params.target_batch % 16 == 0 && params.target_head % 16 == 0 &&
                         params.target_group % 16 == 0;
    return launch(run, kernels_.value, o.quantize.grid, o.quantize.threads, rows_shared_bytes, params);
  }

  Status find_means(Run& run, const Operand& o, const Tensor& t) const noexcept {
    const Attention& a = attention();
    const bool extremes = t.granularity != Granularity::block && !a.quantization.amax;
    if (o.columns_search.grid > 0) {
      const ColumnsParams params{source(o, t, o.columns_search), run.floats(o.columns_at), extremes};
      const Status status =
          launch(run, kernels_.columns, o.columns_search.grid, o.columns_search.threads, columns_shared_bytes, params);
      if (!status.ok()) return status;
    }
    if (o.means_grid == 0) return {};
    CombineParams params = combine_params(o, t, o.columns_search.blocks);
    params.found = run.floats(o.columns_at);
    params.mean = static_cast<float*>(run.arguments.value_mean.data);
    params.mean_batch = a.value_mean.stride[0];
    params.mean_head = a.value_mean.stride[1];
    params.extremes = extremes;
    params.largest = run.floats(o.largest_at);
    return launch(run, kernels_.combine, o.means_grid, threads, combine_shared_bytes, params);
  }

  Status combine_scales(Run& run, const Operand& o, const Tensor& t, bool means) const noexcept {
    const Attention& a = attention();
    CombineParams params = combine_params(o, t, o.search.blocks);
    if (means) {  // one number a head
      params.rows.cumulative = nullptr;
      params.blocks = {1, 1, static_cast<int32_t>(a.batch)};
    }
    params.found = run.floats(o.largest_at);
    params.scales = scales(t.scale_spec, t.scale.data, t.granularity, t.packed);
    if (a.quantization.amax) params.given = scales(t.amax.spec, t.amax.data, t.granularity, t.packed);
    params.all_heads = t.granularity == Granularity::tensor;
    params.norm = t.of_query || &t.source_spec == &a.key ? hadamard_norm(plan_.hadamard) : 1;
    params.limit = t.target_spec.dtype == Dtype::int8 ? largest_int8 : largest_e4m3;
    return launch(run, kernels_.combine, o.scales_grid, threads, combine_shared_bytes, params);
  }

  CombineParams combine_params(const Operand& o, const Tensor& t, const QueryBlocks& blocks) const noexcept {
    CombineParams params{};
    params.rows = rows(t);
    params.blocks = blocks;
    params.batch = static_cast<int32_t>(attention().batch);
    params.heads = o.heads;
    params.columns = o.columns;
    return params;
  }

  const QuantizePlan plan_;
  const std::shared_ptr<Device> device_;
  const Kernels kernels_;
  uint32_t signs_[32] = {};
};

}  // namespace

ExecutableResult prepare(const Attention& attention, std::shared_ptr<Device> device) noexcept {
  return guarded([&]() -> ExecutableResult {
    const Result<QuantizePlan> plan = plan_quantize_sm90(attention, device->traits());
    if (!plan) return plan.status();
    Kernels kernels{};
    const struct {
      const char* name;
      int shared_bytes;
      KernelHandle& handle;
    } list[] = {{rows_kernel, rows_shared_bytes, kernels.rows},
                {value_kernel, rows_shared_bytes, kernels.value},
                {columns_kernel, columns_shared_bytes, kernels.columns},
                {combine_kernel, combine_shared_bytes, kernels.combine}};
    for (const auto& kernel : list) {
      const auto loaded = device->load(kernel.name, kernel.shared_bytes);
      if (!loaded) return loaded.status();
      kernel.handle = *loaded;
    }
    return std::shared_ptr<const Executable>(
        std::make_shared<QuantizeExecutable>(attention, *plan, std::move(device), kernels));
  });
}

}  // namespace tandem::internal::sm90::quantize
