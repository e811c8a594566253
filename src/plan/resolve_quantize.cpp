// See resolve_quantize.hpp. The quantiser reads query, key and value in 16 bits, each where it is given, and writes the
// same in 8 bits with scales.
#include "plan/resolve_quantize.hpp"

#include <algorithm>

#include "common/status.hpp"
#include "plan/resolve_lengths.hpp"
#include "plan/scales.hpp"
#include "plan/spec.hpp"

namespace tandem::internal {
namespace {

long long wide(int64_t x) { return x; }

/// A tensor that is quantised: what it is read from, what is written, and how it is scaled.
struct Item {
  const char* source_name;
  const char* quantized_name;
  TensorSpec Problem::*source;
  TensorSpec Problem::*quantized;
  TensorSpec Attention::*resolved_source;
  TensorSpec Attention::*resolved_quantized;
  Scaled scaled;
};
constexpr Item items[] = {
    {"query", "quantized_query", &Problem::query, &Problem::quantized_query, &Attention::query,
     &Attention::quantized_query, scaled_query},
    {"key", "quantized_key", &Problem::key, &Problem::quantized_key, &Attention::key, &Attention::quantized_key,
     scaled_key},
    {"value", "quantized_value", &Problem::value, &Problem::quantized_value, &Attention::value,
     &Attention::quantized_value, scaled_value},
};

bool is_value(const Item& item) { return item.source == &Problem::value; }

Status refuse_attention(const Problem& problem) {
  const Mask& mask = problem.mask;
  const struct {
    const char* name;
    bool given;
  } fields[] = {{"out", problem.out.present()},
                {"lse", problem.lse.present()},
                {"grad_out", problem.grad_out.present()},
                {"grad_query", problem.grad_query.present()},
                {"grad_key", problem.grad_key.present()},
                {"grad_value", problem.grad_value.present()},
                {"scale", problem.scale.has_value()},
                {"softcap", problem.softcap != 0},
                {"sinks", problem.sinks},
                {"mask.causal", mask.causal},
                {"mask.left", mask.left != -1},
                {"mask.right", mask.right != -1},
                {"mask.diagonal", mask.diagonal.has_value()}};
  for (const auto& field : fields) {
    if (!field.given) continue;
    return error(Code::invalid_argument, field.name, "%s is given, but the quantize pass takes none", field.name);
  }
  return {};
}

/// Well formed, fp16 or bf16, of one dtype and device, (batch, seqlen, heads, dim) or packed.
Status check_source(const Item& item, const Problem& problem, Attention& attention) {
  const TensorSpec& spec = problem.*item.source;
  const char* name = item.source_name;
  if (Status status = check_spec(name, spec, true); !status.ok()) return status;
  if (spec.dtype != Dtype::bf16 && spec.dtype != Dtype::fp16) {
    return error(Code::invalid_argument, name, "%s has dtype %s; the quantize pass reads bf16 or fp16", name,
                 tandem::name(spec.dtype));
  }
  if (attention.dtype != Dtype::none && (spec.dtype != attention.dtype || spec.device != attention.device)) {
    return error(Code::invalid_argument, name, "%s is %s on %s %d, but another tensor is %s on %s %d; they must agree",
                 name, tandem::name(spec.dtype), device_text(spec.device), spec.device.index,
                 tandem::name(attention.dtype), device_text(attention.device), attention.device.index);
  }
  attention.dtype = spec.dtype;
  attention.device = spec.device;
  const bool packed = item.scaled.of_query ? problem.lengths.packed_query : problem.lengths.packed_key;
  if (spec.rank != (packed ? 3 : 4)) {
    return error(Code::invalid_argument, name, "%s has rank %d; it must be %s", name, spec.rank,
                 packed ? "packed, (total, heads, head_dim)" : "(batch, seqlen, heads, head_dim)");
  }
  return {};
}

Status check_sources(const Problem& problem, Attention& attention) {
  attention.dtype = Dtype::none;
  for (const Item& item : items) {
    const bool given = (problem.*item.source).present();
    if (!given && (problem.*item.quantized).present()) {
      return error(Code::invalid_argument, item.source_name, "%s is missing, but %s is given; leave both or give both",
                   item.source_name, item.quantized_name);
    }
    if (!given && (problem.*item.scaled.given).present()) {
      return error(Code::invalid_argument, item.source_name, "%s is missing, but %s is given; leave both or give both",
                   item.source_name, item.scaled.scale);
    }
    if (!given) continue;
    if (Status status = check_source(item, problem, attention); !status.ok()) return status;
    attention.*item.resolved_source = normalized(problem.*item.source);
  }
  if (attention.dtype != Dtype::none) return {};
  return error(Code::invalid_argument, "query",
               "query, key and value are missing; the quantize pass needs one of them");
}

/// A tensor's heads and dimensions, which agree with those that are known.
Status check_dims_of(const Item& item, const TensorSpec& spec, Attention& attention) {
  const int64_t dim = spec.size[spec.rank - 1], heads = spec.size[spec.rank - 2];
  int64_t& known_dim = is_value(item) ? attention.value_dim : attention.head_dim;
  int64_t& known_heads = item.scaled.of_query ? attention.query_heads : attention.key_heads;
  if (dim < 1 || dim > 512) {
    return error(Code::invalid_argument, item.source_name, "head_dim of %s is %lld; it must be 1 to 512",
                 item.source_name, wide(dim));
  }
  if (heads < 1 || heads >= row_limit) {
    return error(Code::invalid_argument, item.source_name, "%s has %lld heads; it must have 1 to %lld",
                 item.source_name, wide(heads), wide(row_limit - 1));
  }
  if ((known_dim != 0 && known_dim != dim) || (known_heads != 0 && known_heads != heads)) {
    return error(Code::invalid_argument, item.source_name,
                 "%s has %lld heads of head_dim %lld, but %s has %lld of %lld; they must agree", item.source_name,
                 wide(heads), wide(dim), is_value(item) ? "key" : "query", wide(known_heads == 0 ? heads : known_heads),
                 wide(known_dim == 0 ? dim : known_dim));
  }
  known_dim = dim;
  known_heads = heads;
  return {};
}

/// Heads and dimensions; 0 for what no given tensor tells.
Status check_dims(const Problem& problem, Attention& attention) {
  for (const Item& item : items) {
    const TensorSpec& spec = problem.*item.source;
    if (!spec.present()) continue;
    if (Status status = check_dims_of(item, spec, attention); !status.ok()) return status;
  }
  if (attention.query_heads == 0 || attention.key_heads == 0 || attention.query_heads % attention.key_heads == 0) {
    return {};
  }
  return error(Code::invalid_argument, "key", "key has %lld heads, which must divide the %lld heads of query",
               wide(attention.key_heads), wide(attention.query_heads));
}

Status check_rows(const Problem& problem, Attention& attention) {
  const TensorSpec &key = problem.key, &value = problem.value;
  if (key.present() && value.present() &&
      !std::equal(key.size.begin(), key.size.begin() + key.rank - 2, value.size.begin())) {
    return error(Code::invalid_argument, "value", "value has sizes %s, but key has %s; batch and rows must agree",
                 shape_text(value).text, shape_text(key).text);
  }
  const Side of_query{"query", problem.query.present() ? &problem.query : nullptr};
  Side of_key{"key", key.present() ? &key : nullptr};
  if (!key.present() && value.present()) of_key = {"value", &value};
  return resolve_lengths(problem.lengths, of_query, of_key, attention);
}

/// The dtype and device of an 8-bit tensor.
Status check_kind(const Item& item, const TensorSpec& spec, const Attention& attention) {
  const char* name = item.quantized_name;
  if (spec.dtype != Dtype::e4m3 && (is_value(item) || spec.dtype != Dtype::int8)) {
    return error(Code::invalid_argument, name, "%s has dtype %s; it must be e4m3%s", name, tandem::name(spec.dtype),
                 is_value(item) ? "" : " or int8");
  }
  if (spec.device != attention.device) {
    return error(Code::invalid_argument, name, "%s is on %s %d, but %s is on %s %d; they must agree", name,
                 device_text(spec.device), spec.device.index, item.source_name, device_text(attention.device),
                 attention.device.index);
  }
  return {};
}

/// The 8-bit tensor: e4m3 contiguous where absent, query and key int8 too.
Status check_quantized(const Item& item, const Problem& problem, Attention& attention) {
  const TensorSpec& source = problem.*item.source;
  const char* name = item.quantized_name;
  const bool groups = is_value(item) && attention.quantization.value_layout == ValueLayout::packed;
  const TensorSpec expected =
      groups ? packed_value_spec(attention) : row_major(Dtype::e4m3, attention.device, source.size.data(), source.rank);
  const TensorSpec& spec = (problem.*item.quantized).present() ? problem.*item.quantized : expected;
  if (Status status = check_spec(name, spec, true); !status.ok()) return status;
  if (Status status = check_kind(item, spec, attention); !status.ok()) return status;
  if (spec.rank != expected.rank ||
      !std::equal(spec.size.begin(), spec.size.begin() + spec.rank, expected.size.begin())) {
    return error(Code::invalid_argument, name, "%s has sizes %s; they must be %s%s", name, shape_text(spec).text,
                 shape_text(expected).text, groups ? ", as quantization.value_layout packed asks" : "");
  }
  const int row = spec.rank - 2;
  if (groups && spec.size[row] > 1 && spec.stride[row] != expected.stride[row]) {
    return error(Code::invalid_argument, name,
                 "stride[%d] of %s is %lld; a packed value's last two dimensions are "
                 "contiguous, stride 16",
                 row, name, wide(spec.stride[row]));
  }
  if (Status status = check_distinct(name, spec); !status.ok()) return status;
  attention.*item.resolved_quantized = normalized(spec);
  return resolve_scale(problem, attention, item.scaled);
}

Status check_amax(const Problem& problem, const Attention& attention) {
  if (!attention.quantization.amax) return {};
  const bool used = std::any_of(std::begin(items), std::end(items), [&](const Item& item) {
    return (problem.*item.source).present() && attention.quantization.*item.scaled.granularity_of != Granularity::block;
  });
  if (used) return {};
  return error(Code::invalid_argument, "quantization.amax",
               "quantization.amax is true, but every given tensor has block scales, which are searched for");
}

Status check_known_mean(const Attention& attention) {
  if (!attention.quantization.known_mean || attention.quantization.value_mean) return {};
  return error(Code::invalid_argument, "quantization.known_mean",
               "quantization.known_mean is true, but no mean is taken out; it needs quantization.value_mean and value");
}

Status check_table(const char* name, const TensorSpec& spec, const Attention& attention, int64_t rows) {
  if (!spec.present()) {
    return error(Code::invalid_argument, name, "%s is missing; rope.dims asks for it", name);
  }
  if (Status status = check_spec(name, spec, true); !status.ok()) return status;
  if (spec.dtype != Dtype::fp32 || spec.device != attention.device) {
    return error(Code::invalid_argument, name, "%s is %s on %s %d; it must be fp32 on %s %d", name,
                 tandem::name(spec.dtype), device_text(spec.device), spec.device.index, device_text(attention.device),
                 attention.device.index);
  }
  const int64_t width = attention.rope.dims / 2;
  if (spec.rank != 2 || spec.size[1] != width || spec.size[0] < rows) {
    return error(Code::invalid_argument, name,
                 "%s has sizes %s; it must be (positions, rope.dims / 2), at least (%lld, %lld)", name,
                 shape_text(spec).text, wide(rows), wide(width));
  }
  return {};
}

Status check_rope(const Problem& problem, Attention& attention) {
  const Rope& rope = problem.rope;
  attention.rope = rope;
  if (rope.dims == 0) {
    if (rope.positions || rope.interleaved || problem.rope_cos.present() || problem.rope_sin.present()) {
      return error(Code::invalid_argument, "rope.dims",
                   "rope.dims is 0, but other fields of rope, rope_cos or rope_sin "
                   "are given");
    }
    return {};
  }
  if (attention.head_dim == 0) {
    return error(Code::invalid_argument, "rope.dims", "rope.dims is %d, but neither query nor key is given", rope.dims);
  }
  if (rope.dims < 0 || rope.dims % 2 != 0 || rope.dims > attention.head_dim) {
    return error(Code::invalid_argument, "rope.dims", "rope.dims is %d; it must be even, 0 to head_dim, %lld",
                 rope.dims, wide(attention.head_dim));
  }
  // With Arguments::position the rows that are needed are known only when running.
  const int64_t rows = rope.positions ? 1
                                      : std::max(problem.query.present() ? attention.max_query : 0,
                                                 problem.key.present() ? attention.max_key : 0);
  if (Status status = check_table("rope_cos", problem.rope_cos, attention, rows); !status.ok()) return status;
  if (Status status = check_table("rope_sin", problem.rope_sin, attention, problem.rope_cos.size[0]); !status.ok()) {
    return status;
  }
  attention.rope_cos = normalized(problem.rope_cos);
  attention.rope_sin = normalized(problem.rope_sin);
  return {};
}

}  // namespace

Status resolve_quantize(const Problem& problem, Attention& attention) {
  attention.quantization = problem.quantization;
  for (const auto step : {check_sources, check_dims, check_rows}) {
    if (Status status = step(problem, attention); !status.ok()) return status;
  }
  if (Status status = refuse_attention(problem); !status.ok()) return status;
  if (Status status = check_value_layout(problem); !status.ok()) return status;
  for (const Item& item : items) {
    if (!(problem.*item.source).present()) continue;
    if (Status status = check_quantized(item, problem, attention); !status.ok()) return status;
  }
  if (attention.quantization.value_mean && !problem.value.present()) attention.quantization.value_mean = false;
  if (Status status = resolve_value_mean(problem, attention); !status.ok()) return status;
  if (Status status = check_known_mean(attention); !status.ok()) return status;
  if (Status status = check_amax(problem, attention); !status.ok()) return status;
  return check_rope(problem, attention);
}

}  // namespace tandem::internal
