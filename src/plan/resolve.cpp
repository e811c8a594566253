// Problem -> Attention: everything about a problem's tensors that doesn't depend on a backend is checked here, in an
// order that lets each message speak of what has been found right before it.
#include <algorithm>
#include <span>

#include "common/status.hpp"
#include "plan/attention.hpp"
#include "plan/resolve_lengths.hpp"
#include "plan/resolve_options.hpp"
#include "plan/resolve_quantize.hpp"
#include "plan/scales.hpp"
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

Status check_pass(const Problem& /*problem*/, Attention& attention) {
  const Pass pass = attention.pass;
  if (pass == Pass::forward || pass == Pass::backward) return {};
  if (pass == Pass::append || pass == Pass::merge) {
    return error(Code::unsupported, "pass",
                 "the passes append and merge aren't served yet; forward, backward and quantize are");
  }
  return error(Code::invalid_argument, "pass", "pass %d isn't one of tandem::Pass", static_cast<int>(pass));
}

/// All tensors that the pass needs, and none that it doesn't take.
Status check_present(const Problem& problem, Attention& attention) {
  const bool forward = attention.pass == Pass::forward;
  for (const Tensor& tensor : tensors) {
    const bool present = (problem.*tensor.given).present();
    if (forward && tensor.gradient && present) {
      return error(Code::invalid_argument, tensor.name, "the forward pass takes no %s; leave its dtype none",
                   tensor.name);
    }
    const bool optional = forward && (tensor.gradient || tensor.given == &Problem::out);
    if (!present && !optional) {
      return error(Code::invalid_argument, tensor.name, "%s is missing; the %s pass needs it", tensor.name,
                   forward ? "forward" : "backward");
    }
  }
  if (!forward && !problem.lse.present()) {
    return error(Code::invalid_argument, "lse", "lse is missing; the backward pass needs that of the forward pass");
  }
  return {};
}

/// What 8 bits decide of everything that is checked after it.
Status check_eight_bits(const Problem& problem, Attention& attention) {
  if (!eight_bits(problem.query.dtype)) return {};
  if (attention.pass == Pass::backward) {
    return error(Code::unsupported, "query",
                 "query has dtype %s; 8-bit attention is forward only: give the backward pass bf16 or fp16",
                 name(problem.query.dtype));
  }
  return check_value_layout(problem);
}

/// The dtype that a tensor must have beside this query: the same, but 8-bit attention has a value of e4m3 and an out of
/// 16 bits, or of e4m3.
Status check_dtype(const Tensor& tensor, Dtype dtype, Dtype query) {
  const bool known = dtype == Dtype::fp32 || dtype == Dtype::fp16 || dtype == Dtype::bf16 || eight_bits(dtype);
  if (!known) {
    return error(Code::invalid_argument, tensor.name, "%s has dtype %s; it must be bf16, fp16 or fp32, or e4m3 or int8",
                 tensor.name, name(dtype));
  }
  if (eight_bits(query) && tensor.given == &Problem::value) {
    if (dtype == Dtype::e4m3) return {};
    return error(Code::invalid_argument, "value", "value has dtype %s, but query has %s; value must be e4m3 then",
                 name(dtype), name(query));
  }
  if (eight_bits(query) && tensor.given == &Problem::out) {
    if (dtype == Dtype::bf16 || dtype == Dtype::fp16 || dtype == Dtype::e4m3) return {};
    return error(Code::invalid_argument, "out",
                 "out has dtype %s, but query has %s; out must be bf16, fp16 or e4m3 then", name(dtype), name(query));
  }
  if (dtype == query) return {};
  return error(Code::invalid_argument, tensor.name, "%s has dtype %s, but query has %s; they must agree", tensor.name,
               name(dtype), name(query));
}

bool packed_groups(const Problem& problem) {
  return eight_bits(problem.query.dtype) && problem.quantization.value_layout == ValueLayout::packed;
}

Status check_rank(const Tensor& tensor, const Problem& problem) {
  const bool of_query = tensor.like == &Problem::query || tensor.like == &Problem::out;
  const bool packed = of_query ? problem.lengths.packed_query : problem.lengths.packed_key;
  const int rank = (problem.*tensor.given).rank;
  if (tensor.given == &Problem::value && packed_groups(problem)) {
    if (rank == (packed ? 4 : 5)) return {};
    return error(Code::invalid_argument, "value",
                 "value has rank %d; with quantization.value_layout packed it must be %s", rank,
                 packed ? "(key_heads, total_key / 16 + batch, value_dim, 16)"
                        : "(batch, key_heads, ceil(seqlen_key / 16), value_dim, 16)");
  }
  if (rank == (packed ? 3 : 4)) return {};
  return error(Code::invalid_argument, tensor.name, "%s has rank %d; %s", tensor.name, rank,
               packed ? "packed, it must be (total, heads, head_dim)"
                      : "it must be (batch, seqlen, heads, head_dim), or packed with lengths.packed_query or _key");
}

/// Well formed, of one dtype and one device, of the rank that its packing asks for.
Status check_specs(const Problem& problem, Attention& attention) {
  for (const Tensor& tensor : tensors) {
    const TensorSpec& spec = problem.*tensor.given;
    if (!spec.present()) continue;
    if (Status status = check_spec(tensor.name, spec, true); !status.ok()) return status;
    if (Status status = check_dtype(tensor, spec.dtype, problem.query.dtype); !status.ok()) return status;
    if (spec.device != problem.query.device) {
      return error(Code::invalid_argument, tensor.name, "%s is on %s %d, but query is on %s %d; they must agree",
                   tensor.name, device_text(spec.device), spec.device.index, device_text(problem.query.device),
                   problem.query.device.index);
    }
    if (Status status = check_rank(tensor, problem); !status.ok()) return status;
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
  attention.value_dim = value.size[value.rank - (packed_groups(problem) ? 2 : 1)];
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
  for (int i = 0; i < value.rank - 1 && !packed_groups(problem); ++i) {
    if (value.size[i] == key.size[i]) continue;
    const int from_end = value.rank - i;  // 2: heads, 3: rows, 4: batch
    return error(Code::invalid_argument, "value", "value has %lld %s, but key has %lld; they must agree",
                 wide(value.size[i]), from_end == 2 ? "heads" : (from_end == 3 ? "rows" : "batch entries"),
                 wide(key.size[i]));
  }
  return {};
}

Status check_lengths(const Problem& problem, Attention& attention) {
  return resolve_lengths(problem.lengths, {"query", &problem.query}, {"key", &problem.key}, attention);
}

/// The shape that a tensor must have: that of the tensor that it is like; out is query's with the value's head dim.
TensorSpec expected_spec(const Problem& problem, const Attention& attention, Where like) {
  if (like != &Problem::out) return problem.*like;
  std::array<int64_t, TensorSpec::max_rank> size = problem.query.size;
  size[problem.query.rank - 1] = attention.value_dim;
  const Dtype dtype = eight_bits(attention.dtype) ? Dtype::bf16 : attention.dtype;
  return row_major(dtype, attention.device, size.data(), problem.query.rank);
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
  attention.lse.alignment = sizeof(float);  // nothing takes it in larger pieces
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
    using Step = Status (*)(const Problem&, Attention&);
    static constexpr Step of_attention[] = {check_pass,           check_eight_bits, check_present,   check_specs,
                                            check_heads,          check_lengths,    check_outputs,   check_lse,
                                            resolve_8bit_forward, resolve_scores,   resolve_options, resolve_backend};
    static constexpr Step of_quantizing[] = {resolve_quantize, resolve_options, resolve_backend};
    const std::span<const Step> steps = pass == Pass::quantize ? std::span<const Step>(of_quantizing) : of_attention;
    for (const Step step : steps) {
      if (Status status = step(problem, attention); !status.ok()) return status;
    }
    return attention;
  });
}

}  // namespace tandem::internal
