// Hands a job's tensors to the oracle, which knows nothing of the library's types.
#include "tools/judge.hpp"

#include <algorithm>
#include <cmath>

#include "tools/failure.hpp"
#include "tools/quantized.hpp"

namespace tandem::tools {
namespace {

oracle::Type type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16:
      return oracle::Type::fp16;
    case Dtype::bf16:
      return oracle::Type::bf16;
    case Dtype::fp32:
      return oracle::Type::fp32;
    default:
      throw Failure(std::string("the oracle has no ") + name(dtype));
  }
}

oracle::Tensor view(const Tensor& tensor) {
  if (!tensor.present()) return {};
  const TensorSpec& spec = tensor.spec;
  oracle::Tensor result{tensor.bytes.data() + tensor.first, type_of(spec.dtype), {}};
  const size_t skip = spec.rank == 3 ? 1 : 0;  // packed: no batch axis
  for (size_t axis = skip; axis < 4; ++axis) result.stride[axis] = spec.stride[axis - skip];
  return result;
}

/// (batch, heads, queries) or (heads, queries) as a tensor of one column.
oracle::Tensor lse_view(const Tensor& lse) {
  if (!lse.present()) return {};
  const auto& stride = lse.spec.stride;
  oracle::Tensor result{lse.bytes.data() + lse.first, oracle::Type::fp32, {}};
  if (lse.spec.rank == 3) {
    result.stride = {stride[0], stride[2], stride[1], 1};
  } else {
    result.stride = {0, stride[1], stride[0], 1};
  }
  return result;
}

oracle::Problem problem_of(const Job& job) {
  const auto axis = [](const Tensor& tensor, int from_end) {
    return tensor.spec.size[static_cast<size_t>(tensor.spec.rank - from_end)];
  };
  oracle::Problem problem;
  const Sequences s = sequences(job);
  for (size_t b = 0; b < static_cast<size_t>(s.batch); ++b) {
    problem.sequences.push_back({s.query_begin[b], s.query_count[b], s.key_begin[b], s.key_count[b]});
  }
  problem.query_heads = axis(job.query, 2);
  problem.key_heads = axis(job.key, 2);
  problem.head_dim = axis(job.query, 1);
  problem.value_dim = axis(job.out, 1);
  // The library's scale is a float, whichever way it is given.
  problem.scale = job.problem.scale.value_or(1.0F / std::sqrt(static_cast<float>(problem.head_dim)));
  problem.softcap = job.problem.softcap;
  problem.causal = job.problem.mask.causal;
  problem.left = job.problem.mask.left;
  problem.right = job.problem.mask.right;
  problem.diagonal = job.problem.mask.diagonal;
  if (job.sinks.present()) problem.sinks = reinterpret_cast<const float*>(job.sinks.bytes.data() + job.sinks.first);
  return problem;
}

/// Row-major numbers that stand for a tensor of (batch, rows, heads, columns), or packed.
oracle::Tensor numbers(const std::vector<double>& values, const Tensor& like, int64_t columns) {
  const int64_t heads = like.spec.size[static_cast<size_t>(like.spec.rank - 2)];
  const int64_t rows = like.spec.size[static_cast<size_t>(like.spec.rank - 3)];
  const auto type = oracle::Type::fp64;
  oracle::Tensor tensor = like.spec.rank == 3 ? oracle::packed(values.data(), type, heads, columns)
                                              : oracle::dense(values.data(), type, rows, heads, columns);
  return tensor;
}

/// The tensor cores truncate the terms of a sum to some 14 bits, once in every 32 dimensions of a score; the CPU's sums
/// are those of float32.
double accumulation_of(Backend backend, int64_t head_dim) {
  if (backend == Backend::cpu) return 0x1p-18;
  const int64_t times = (head_dim + 31) / 32;
  return std::max(0x1p-11, static_cast<double>(times) * 0x1p-13);
}

oracle::Verdict judge_8bit(const Job& job, oracle::Problem problem, const std::vector<oracle::RowIndex>& rows,
                           Backend backend) {
  const Dequantised values = dequantised(job);
  problem.query = numbers(values.query, job.query, problem.head_dim);
  problem.key = numbers(values.key, job.key, problem.head_dim);
  problem.value = numbers(values.value, job.key, problem.value_dim);
  problem.value_scale = numbers(values.value_scale, job.key, 1);
  if (job.value_mean.present()) {
    const auto& stride = job.value_mean.spec.stride;
    problem.value_mean = {
        job.value_mean.bytes.data() + job.value_mean.first, oracle::Type::fp32, {stride[0], 0, stride[1], stride[2]}};
  }
  oracle::Tensor out;
  if (job.out.spec.dtype == Dtype::e4m3) {
    problem.out_type = oracle::Type::e4m3;
    problem.out_scale = values.out_scale;
    out = numbers(values.out, job.out, problem.value_dim);
  } else {
    out = view(job.out);
    problem.out_type = out.type;
  }
  return oracle::judge_quantised(problem, rows, out, lse_view(job.lse), accumulation_of(backend, problem.head_dim));
}

}  // namespace

oracle::Tensor oracle_view(const Tensor& tensor) { return view(tensor); }

oracle::Problem oracle_problem(const Job& job) {
  oracle::Problem problem = problem_of(job);
  problem.query = view(job.query);
  problem.key = view(job.key);
  problem.value = view(job.value);
  return problem;
}

oracle::Verdict judge(const Job& job, int64_t rows, uint64_t seed) {
  oracle::Problem problem = eight_bits(job.query.spec.dtype) ? problem_of(job) : oracle_problem(job);
  const auto chosen = rows < 0 ? oracle::all_rows(problem) : oracle::sampled_rows(problem, rows, seed);
  if (eight_bits(job.query.spec.dtype)) return judge_8bit(job, problem, chosen, job.problem.options.backend);
  if (job.pass == Pass::backward) {
    return oracle::judge_backward(problem, view(job.grad_out), view(job.grad_query), view(job.grad_key),
                                  view(job.grad_value));
  }
  return oracle::judge_forward(problem, chosen, view(job.out), lse_view(job.lse));
}

int64_t affordable_rows(const Job& job, double operations) {
  const Sequences s = sequences(job);
  const double longest = static_cast<double>(s.max_key);
  const double dims = static_cast<double>(job.query.spec.size[static_cast<size_t>(job.query.spec.rank - 1)] +
                                          job.out.spec.size[static_cast<size_t>(job.out.spec.rank - 1)]);
  return static_cast<int64_t>(std::max(64.0, operations / std::max(1.0, longest * dims)));
}

}  // namespace tandem::tools
