// See scales.hpp.
#include "plan/scales.hpp"

#include <algorithm>

#include "common/quantized.hpp"
#include "common/status.hpp"
#include "plan/spec.hpp"

namespace tandem::internal {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// What the dimensions of a tensor's scales mean, for messages.
const char* scale_shape(const Attention& attention, const Scaled& scaled) {
  switch (attention.quantization.*scaled.granularity_of) {
    case Granularity::tensor:
      return "(1)";
    case Granularity::head:
      return scaled.of_query ? "(batch, query_heads)" : "(batch, key_heads)";
    case Granularity::block:
      break;
  }
  if (scaled.of_query) {
    return attention.packed_query ? "(query_heads, total_query / rows + batch)"
                                  : "(batch, query_heads, ceil(seqlen_query / rows))";
  }
  return attention.packed_key ? "(key_heads, total_key / rows + batch)" : "(batch, key_heads, ceil(seqlen_key / rows))";
}

/// A float32 tensor that belongs to another: its dtype, device and sizes; `meaning` says what the sizes stand for. What
/// is `written` must not overlap itself.
Status check_floats(const char* name, const Attention& attention, const TensorSpec& expected, const char* meaning,
                    const TensorSpec& spec, bool written) {
  if (Status status = check_spec(name, spec, false); !status.ok()) return status;
  if (spec.dtype != Dtype::fp32) {
    return error(Code::invalid_argument, name, "%s has dtype %s; it must be fp32 of sizes %s, %s", name,
                 tandem::name(spec.dtype), shape_text(expected).text, meaning);
  }
  if (spec.device != attention.device) {
    return error(Code::invalid_argument, name, "%s is on %s %d, but the tensors are on %s %d; they must agree", name,
                 device_text(spec.device), spec.device.index, device_text(attention.device), attention.device.index);
  }
  if (spec.rank != expected.rank ||
      !std::equal(spec.size.begin(), spec.size.begin() + spec.rank, expected.size.begin())) {
    return error(Code::invalid_argument, name, "%s has sizes %s; they must be %s, %s", name, shape_text(spec).text,
                 shape_text(expected).text, meaning);
  }
  return written ? check_distinct(name, spec) : Status{};
}

/// Kernels read and write floats one by one, so that no more need be promised of their address.
TensorSpec floats(const TensorSpec& spec) {
  TensorSpec result = normalized(spec);
  result.alignment = sizeof(float);
  return result;
}

/// Checks given scales, or fills in absent ones, once the rows of a block are known.
Status complete_scale(Attention& attention, const Scaled& scaled) {
  const TensorSpec expected = scale_spec(attention, scaled);
  TensorSpec& spec = attention.*scaled.resolved;
  if (!spec.present()) spec = expected;
  if (Status status = check_floats(scaled.scale, attention, expected, scale_shape(attention, scaled), spec,
                                   attention.pass == Pass::quantize);
      !status.ok()) {
    return status;
  }
  spec = floats(spec);
  return {};
}

Status choose_rows(Attention& attention, const Scaled& scaled, BlockRows backend) {
  if (attention.quantization.*scaled.granularity_of != Granularity::block) return {};
  int& rows = attention.quantization.*scaled.rows_of;
  if (rows == 0) rows = backend.choice;
  if (rows % backend.unit != 0) {
    return error(Code::unsupported, scaled.rows,
                 "%s is %d; for this problem the %s backend takes multiples of %d (leave it 0 and ask "
                 "Plan::quantization())",
                 scaled.rows, rows, name(attention.backend), backend.unit);
  }
  return complete_scale(attention, scaled);
}

Status check_packed_value(const Problem& problem, Attention& attention) {
  if (attention.quantization.value_layout != ValueLayout::packed) return {};
  const TensorSpec& value = problem.value;
  const TensorSpec expected = packed_value_spec(attention);
  const int last = value.rank - 1;
  if (!std::equal(value.size.begin(), value.size.begin() + value.rank, expected.size.begin())) {
    return error(Code::invalid_argument, "value", "packed, value has sizes %s; they must be %s, %s",
                 shape_text(value).text, shape_text(expected).text,
                 attention.packed_key ? "(key_heads, total_key / 16 + batch, value_dim, 16)"
                                      : "(batch, key_heads, ceil(seqlen_key / 16), value_dim, 16)");
  }
  if (value.size[last - 1] > 1 && value.stride[last - 1] != value_group) {
    return error(Code::invalid_argument, "value",
                 "stride[%d] of value is %lld; the last two dimensions of a packed value must be contiguous, stride 16",
                 last - 1, static_cast<long long>(value.stride[last - 1]));
  }
  return {};
}

Status refuse_scales(const Problem& problem) {
  const struct {
    const char* name;
    bool given;
  } fields[] = {{"query_scale", problem.query_scale.present()},
                {"key_scale", problem.key_scale.present()},
                {"value_scale", problem.value_scale.present()},
                {"value_mean", problem.value_mean.present()},
                {"quantization.value_mean", problem.quantization.value_mean}};
  for (const auto& field : fields) {
    if (!field.given) continue;
    return error(Code::invalid_argument, field.name,
                 "%s is given, but query has dtype %s; only 8-bit attention (query e4m3 or int8) takes it", field.name,
                 name(problem.query.dtype));
  }
  return {};
}

}  // namespace

TensorSpec scale_spec(const Attention& attention, const Scaled& scaled) {
  const bool packed = scaled.of_query ? attention.packed_query : attention.packed_key;
  const int64_t heads = scaled.of_query ? attention.query_heads : attention.key_heads;
  const int64_t rows = std::max(attention.quantization.*scaled.rows_of, 1);
  const int64_t total = scaled.of_query ? attention.total_query : attention.total_key;
  const int64_t maximum = scaled.of_query ? attention.max_query : attention.max_key;
  const int64_t one[] = {1}, by_head[] = {attention.batch, heads};
  const int64_t by_block[] = {attention.batch, heads, divide_up(maximum, rows)};
  const int64_t by_packed_block[] = {heads, total / rows + attention.batch};
  TensorSpec spec;
  switch (attention.quantization.*scaled.granularity_of) {
    case Granularity::tensor:
      spec = row_major(Dtype::fp32, attention.device, one, 1);
      break;
    case Granularity::head:
      spec = row_major(Dtype::fp32, attention.device, by_head, 2);
      break;
    case Granularity::block:
      spec = packed ? row_major(Dtype::fp32, attention.device, by_packed_block, 2)
                    : row_major(Dtype::fp32, attention.device, by_block, 3);
      break;
  }
  return floats(spec);
}

TensorSpec packed_value_spec(const Attention& attention) {
  const int64_t dense[] = {attention.batch, attention.key_heads, divide_up(attention.max_key, value_group),
                           attention.value_dim, value_group};
  const int64_t packed[] = {attention.key_heads, attention.total_key / value_group + attention.batch,
                            attention.value_dim, value_group};
  return attention.packed_key ? row_major(Dtype::e4m3, attention.device, packed, 4)
                              : row_major(Dtype::e4m3, attention.device, dense, 5);
}

Status resolve_scale(const Problem& problem, Attention& attention, const Scaled& scaled) {
  const Granularity granularity = attention.quantization.*scaled.granularity_of;
  const int rows = attention.quantization.*scaled.rows_of;
  if (granularity != Granularity::tensor && granularity != Granularity::head && granularity != Granularity::block) {
    return error(Code::invalid_argument, scaled.granularity, "%s is %d, which isn't one of tandem::Granularity",
                 scaled.granularity, static_cast<int>(granularity));
  }
  if (rows < 0 || rows >= row_limit) {
    return error(Code::invalid_argument, scaled.rows, "%s is %d; it must be 0 (the plan's choice) or a count of rows",
                 scaled.rows, rows);
  }
  attention.*scaled.resolved = problem.*scaled.given;
  if (granularity != Granularity::block) attention.quantization.*scaled.rows_of = 0;
  if (granularity != Granularity::block || rows > 0) return complete_scale(attention, scaled);
  if (attention.pass == Pass::quantize) {
    return error(Code::invalid_argument, scaled.rows,
                 "%s is 0; take the rows of a block from Plan::quantization() of the forward plan", scaled.rows);
  }
  return {};
}

Status check_value_layout(const Problem& problem) {
  const ValueLayout layout = problem.quantization.value_layout;
  if (layout == ValueLayout::rows || layout == ValueLayout::packed) return {};
  return error(Code::invalid_argument, "quantization.value_layout",
               "quantization.value_layout is %d, which isn't one of tandem::ValueLayout", static_cast<int>(layout));
}

Status resolve_value_mean(const Problem& problem, Attention& attention) {
  if (!attention.quantization.value_mean) {
    if (!problem.value_mean.present()) return {};
    return error(Code::invalid_argument, "value_mean", "value_mean is given, but quantization.value_mean is false");
  }
  const int64_t size[] = {attention.batch, attention.key_heads, attention.value_dim};
  const TensorSpec expected = row_major(Dtype::fp32, attention.device, size, 3);
  const TensorSpec& spec = problem.value_mean.present() ? problem.value_mean : expected;
  if (Status status = check_floats("value_mean", attention, expected, "(batch, key_heads, value_dim)", spec,
                                   attention.pass == Pass::quantize && attention.searches_mean());
      !status.ok()) {
    return status;
  }
  attention.value_mean = floats(spec);
  return {};
}

Status refuse_quantizing(const Problem& problem, const char* pass) {
  const struct {
    const char* name;
    bool given;
  } fields[] = {{"quantized_query", problem.quantized_query.present()},
                {"quantized_key", problem.quantized_key.present()},
                {"quantized_value", problem.quantized_value.present()},
                {"rope_cos", problem.rope_cos.present()},
                {"rope_sin", problem.rope_sin.present()},
                {"rope.dims", problem.rope.dims != 0},
                {"rope.positions", problem.rope.positions}};
  for (const auto& field : fields) {
    if (!field.given) continue;
    return error(Code::invalid_argument, field.name, "%s is given; the quantize pass takes it, the %s pass doesn't",
                 field.name, pass);
  }
  return {};
}

Status resolve_8bit_forward(const Problem& problem, Attention& attention) {
  if (Status status = refuse_quantizing(problem, attention.pass == Pass::forward ? "forward" : "backward");
      !status.ok()) {
    return status;
  }
  if (!eight_bits(attention.dtype)) return refuse_scales(problem);
  attention.quantization = problem.quantization;
  if (Status status = check_packed_value(problem, attention); !status.ok()) return status;
  for (const Scaled& scaled : {scaled_query, scaled_key, scaled_value}) {
    if (Status status = resolve_scale(problem, attention, scaled); !status.ok()) return status;
  }
  return resolve_value_mean(problem, attention);
}

Status choose_blocks(Attention& attention, BlockRows query, BlockRows key, BlockRows value) {
  if (Status status = choose_rows(attention, scaled_query, query); !status.ok()) return status;
  if (Status status = choose_rows(attention, scaled_key, key); !status.ok()) return status;
  return choose_rows(attention, scaled_value, value);
}

}  // namespace tandem::internal
