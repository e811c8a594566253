// Problem -> Attention: everything about a problem's tensors that doesn't depend on a backend is checked here, in an
// order that lets each message speak of what has been found right before it.
#include <algorithm>

#include "common/status.hpp"
#include "plan/attention.hpp"
#include "plan/resolve_options.hpp"
#include "plan/spec.hpp"

namespace tandem::internal {
namespace {

using Where = TensorSpec Problem::*;
using Resolved = TensorSpec Attention::*;

struct Tensor {
  const char* name;
  Where given;
  Resolved resolved;
  Where like;  // the tensor whose shape this one has; itself for the three that define the shapes
  enum class Role { input, output } forward, backward;
  bool gradient;
};

constexpr auto in = Tensor::Role::input, written = Tensor::Role::output;
constexpr Tensor tensors[] = {
    {"query", &Problem::query, &Attention::query, &Problem::query, in, in, false},
    {"key", &Problem::key, &Attention::key, &Problem::key, in, in, false},
    {"value", &Problem::value, &Attention::value, &Problem::value, in, in, false},
    {"out", &Problem::out, &Attention::out, &Problem::out, written, in, false},
    {"grad_out", &Problem::grad_out, &Attention::grad_out, &Problem::out, in, in, true},
    {"grad_query", &Problem::grad_query, &Attention::grad_query, &Problem::query, written, written, true},
    {"grad_key", &Problem::grad_key, &Attention::grad_key, &Problem::key, written, written, true},
    {"grad_value", &Problem::grad_value, &Attention::grad_value, &Problem::value, written, written, true},
};

long long wide(int64_t x) { return x; }

Status check_pass(const Problem& problem, Attention& attention) {
  const Pass pass = attention.pass;
  if (pass == Pass::quantize || pass == Pass::append || pass == Pass::merge) {
    return error(Code::unsupported, "pass", "the passes quantize, append and merge aren't served yet; forward is");
  }
  if (pass != Pass::forward && pass != Pass::backward) {
    return error(Code::invalid_argument, "pass", "pass %d isn't one of tandem::Pass", static_cast<int>(pass));
  }
  for (const Tensor& tensor : tensors) {
    const bool present = (problem.*tensor.given).present();
    if (pass == Pass::forward && tensor.gradient && present) {
      return error(Code::invalid_argument, tensor.name, "the forward pass takes no %s; leave its dtype none",
                   tensor.name);
    }
    const bool optional = pass == Pass::forward && (tensor.gradient || tensor.given == &Problem::out);
    if (!present && !optional) {
      return error(Code::invalid_argument, tensor.name, "%s is missing; the %s pass needs it", tensor.name,
                   pass == Pass::forward ? "forward" : "backward");
    }
  }
  if (pass == Pass::backward && !problem.lse.present()) {
    return error(Code::invalid_argument, "lse", "lse is missing; the backward pass needs that of the forward pass");
  }
  return {};
}

Status check_dtype(const char* name, Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
    case Dtype::fp16:
    case Dtype::bf16:
      return {};
    case Dtype::e4m3:
    case Dtype::int8:
      return error(Code::unsupported, name, "%s has dtype %s, which isn't served yet; use bf16, fp16 or fp32", name,
                   tandem::name(dtype));
    default:
      return error(Code::invalid_argument, name, "%s has dtype %s; it must be bf16, fp16 or fp32", name,
                   tandem::name(dtype));
  }
}

/// Well formed, of one dtype and one device, of the rank that its packing asks for.
Status check_specs(const Problem& problem, Attention& attention) {
  attention.packed_query = problem.lengths.packed_query;
  attention.packed_key = problem.lengths.packed_key;
  for (const Tensor& tensor : tensors) {
    const TensorSpec& spec = problem.*tensor.given;
    if (!spec.present()) continue;
    if (Status status = check_spec(tensor.name, spec, true); !status.ok()) return status;
    if (Status status = check_dtype(tensor.name, spec.dtype); !status.ok()) return status;
    if (spec.dtype != problem.query.dtype) {
      return error(Code::invalid_argument, tensor.name, "%s has dtype %s, but query has %s; they must agree",
                   tensor.name, name(spec.dtype), name(problem.query.dtype));
    }
    if (spec.device != problem.query.device) {
      return error(Code::invalid_argument, tensor.name, "%s is on %s %d, but query is on %s %d; they must agree",
                   tensor.name, device_text(spec.device), spec.device.index, device_text(problem.query.device),
                   problem.query.device.index);
    }
    const bool of_query = tensor.like == &Problem::query || tensor.like == &Problem::out;
    const bool packed = of_query ? attention.packed_query : attention.packed_key;
    if (spec.rank != (packed ? 3 : 4)) {
      return error(Code::invalid_argument, tensor.name, "%s has rank %d; %s", tensor.name, spec.rank,
                   packed ? "packed, it must be (total, heads, head_dim)"
                          : "it must be (batch, seqlen, heads, head_dim), or packed with lengths.packed_query or _key");
    }
  }
  attention.dtype = problem.query.dtype;
  attention.device = problem.query.device;
  return {};
}

Status check_head_dim(const char* name, int64_t dim) {
  if (dim >= 1 && dim <= 512) return {};
  return error(Code::invalid_argument, name, "head_dim of %s is %lld; it must be 1 to 512", name, wide(dim));
}

Status check_heads(const Problem& problem, Attention& attention) {
  const TensorSpec &query = problem.query, &key = problem.key, &value = problem.value;
  attention.query_heads = query.size[query.rank - 2];
  attention.key_heads = key.size[key.rank - 2];
  attention.head_dim = query.size[query.rank - 1];
  attention.value_dim = value.size[value.rank - 1];
  if (attention.query_heads < 1 || attention.query_heads >= row_limit) {
    return error(Code::invalid_argument, "query", "query has %lld heads; it must have 1 to %lld",
                 wide(attention.query_heads), wide(row_limit - 1));
  }
  if (attention.key_heads < 1 || attention.query_heads % attention.key_heads != 0) {
    return error(Code::invalid_argument, "key", "key has %lld heads, which must divide the %lld heads of query",
                 wide(attention.key_heads), wide(attention.query_heads));
  }
  if (Status status = check_head_dim("query", attention.head_dim); !status.ok()) return status;
  if (Status status = check_head_dim("value", attention.value_dim); !status.ok()) return status;
  if (key.size[key.rank - 1] != attention.head_dim) {
    return error(Code::invalid_argument, "key", "head_dim of key is %lld, but that of query is %lld; they must agree",
                 wide(key.size[key.rank - 1]), wide(attention.head_dim));
  }
  for (int i = 0; i < value.rank - 1; ++i) {
    if (value.size[i] == key.size[i]) continue;
    const int from_end = value.rank - i;  // 2: heads, 3: rows, 4: batch
    return error(Code::invalid_argument, "value", "value has %lld %s, but key has %lld; they must agree",
                 wide(value.size[i]), from_end == 2 ? "heads" : (from_end == 3 ? "rows" : "batch entries"),
                 wide(key.size[i]));
  }
  return {};
}

/// One side's batch and rows; `batch` is -1 until a side or lengths.batch has told it.
Status take_side(const char* name, const TensorSpec& spec, bool packed, int64_t& batch) {
  if (packed) return {};
  if (batch >= 0 && spec.size[0] != batch) {
    return error(Code::invalid_argument, name, "%s has batch %lld, but query or lengths.batch has %lld", name,
                 wide(spec.size[0]), wide(batch));
  }
  batch = spec.size[0];
  return {};
}

Status take_maximum(const char* name, const char* maximum_name, const TensorSpec& spec, bool packed, int64_t given,
                    int64_t batch, int64_t& maximum, int64_t& total) {
  const int64_t rows = spec.size[packed ? 0 : 1];
  if (given < -1) {
    return error(Code::invalid_argument, maximum_name, "%s is %lld; it must be -1 (absent) or a length", maximum_name,
                 wide(given));
  }
  if (!packed && given != -1 && given != rows) {
    return error(Code::invalid_argument, maximum_name, "%s is %lld, but %s isn't packed and has %lld rows; leave it -1",
                 maximum_name, wide(given), name, wide(rows));
  }
  if (packed && batch == 0 && rows > 0) {
    return error(Code::invalid_argument, "lengths.batch", "lengths.batch is 0, but %s has %lld rows", name, wide(rows));
  }
  if (packed) {
    total = rows;
  } else if (__builtin_mul_overflow(batch, rows, &total)) {
    total = row_limit;
  }
  if (rows >= row_limit || total >= row_limit) {
    return error(Code::invalid_argument, name, "%s with sizes %s has too many rows; at most %lld are served", name,
                 shape_text(spec).text, wide(row_limit - 1));
  }
  maximum = given == -1 || given > rows ? rows : given;
  return {};
}

Status check_lengths(const Problem& problem, Attention& attention) {
  const Lengths& lengths = problem.lengths;
  attention.used_query = lengths.used_query;
  attention.used_key = lengths.used_key;
  int64_t batch = lengths.batch;
  if (batch < -1 || batch >= row_limit) {
    return error(Code::invalid_argument, "lengths.batch", "lengths.batch is %lld; it must be -1 (absent) or a count",
                 wide(batch));
  }
  if (Status status = take_side("query", problem.query, lengths.packed_query, batch); !status.ok()) return status;
  if (Status status = take_side("key", problem.key, lengths.packed_key, batch); !status.ok()) return status;
  if (batch < 0) {
    return error(Code::invalid_argument, "lengths.batch",
                 "lengths.batch is missing; packed tensors don't tell the number of sequences");
  }
  attention.batch = batch;
  if (Status status = take_maximum("query", "lengths.max_query", problem.query, lengths.packed_query, lengths.max_query,
                                   batch, attention.max_query, attention.total_query);
      !status.ok()) {
    return status;
  }
  return take_maximum("key", "lengths.max_key", problem.key, lengths.packed_key, lengths.max_key, batch,
                      attention.max_key, attention.total_key);
}

/// The shape that a tensor must have: that of the tensor that it is like; out is query's with the value's head dim.
TensorSpec expected_spec(const Problem& problem, const Attention& attention, Where like) {
  if (like != &Problem::out) return problem.*like;
  std::array<int64_t, TensorSpec::max_rank> size = problem.query.size;
  size[problem.query.rank - 1] = attention.value_dim;
  return row_major(attention.dtype, attention.device, size.data(), problem.query.rank);
}

Status check_outputs(const Problem& problem, Attention& attention) {
  for (const Tensor& tensor : tensors) {
    const TensorSpec& given = problem.*tensor.given;
    const bool needed = tensor.given == &Problem::out || given.present();
    if (!needed) continue;
    const TensorSpec expected = expected_spec(problem, attention, tensor.like);
    const TensorSpec& spec = given.present() ? given : expected;
    if (!std::equal(spec.size.begin(), spec.size.begin() + spec.rank, expected.size.begin())) {
      return error(Code::invalid_argument, tensor.name, "%s has sizes %s; they must be %s", tensor.name,
                   shape_text(spec).text, shape_text(expected).text);
    }
    if (Status status = check_spec(tensor.name, spec, true); !status.ok()) return status;
    const auto role = attention.pass == Pass::backward ? tensor.backward : tensor.forward;
    if (role == written) {
      if (Status status = check_distinct(tensor.name, spec); !status.ok()) return status;
    }
    attention.*tensor.resolved = normalized(spec);
  }
  return {};
}

Status check_lse(const Problem& problem, Attention& attention) {
  const TensorSpec& lse = problem.lse;
  if (!lse.present()) return {};
  if (Status status = check_spec("lse", lse, false); !status.ok()) return status;
  if (lse.dtype != Dtype::fp32) {
    return error(Code::invalid_argument, "lse", "lse has dtype %s; it must be fp32", name(lse.dtype));
  }
  if (lse.device != attention.device) {
    return error(Code::invalid_argument, "lse", "lse is on %s %d, but query is on %s %d; they must agree",
                 device_text(lse.device), lse.device.index, device_text(attention.device), attention.device.index);
  }
  const int64_t dense[] = {attention.batch, attention.query_heads, attention.max_query};
  const int64_t packed[] = {attention.query_heads, attention.total_query};
  const TensorSpec expected = attention.packed_query ? row_major(Dtype::fp32, attention.device, packed, 2)
                                                     : row_major(Dtype::fp32, attention.device, dense, 3);
  if (lse.rank != expected.rank || !std::equal(lse.size.begin(), lse.size.begin() + lse.rank, expected.size.begin())) {
    return error(Code::invalid_argument, "lse", "lse has sizes %s; they must be %s, %s", shape_text(lse).text,
                 shape_text(expected).text,
                 attention.packed_query ? "(query_heads, total_query)" : "(batch, query_heads, seqlen_query)");
  }
  if (attention.pass == Pass::forward) {
    if (Status status = check_distinct("lse", lse); !status.ok()) return status;
  }
  attention.lse = normalized(lse);
  return {};
}

}  // namespace

Strides strides(const TensorSpec& spec) {
  if (spec.rank == 3) return {0, spec.stride[0], spec.stride[1]};
  return {spec.stride[0], spec.stride[1], spec.stride[2]};
}

Strides lse_strides(const TensorSpec& spec) {
  if (spec.rank == 2) return {0, spec.stride[1], spec.stride[0]};
  return {spec.stride[0], spec.stride[2], spec.stride[1]};
}

Result<Attention> resolve(Pass pass, const Problem& problem) noexcept {
  return guarded([&]() -> Result<Attention> {
    Attention attention;
    attention.pass = pass;
    for (const auto step : {check_pass, check_specs, check_heads, check_lengths, check_outputs, check_lse,
                            resolve_scores, resolve_options, resolve_backend}) {
      if (Status status = step(problem, attention); !status.ok()) return status;
    }
    return attention;
  });
}

}  // namespace tandem::internal
