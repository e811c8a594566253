// See measure.hpp.
#include "tools/accuracy/measure.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "oracle/random.hpp"
#include "tools/failure.hpp"
#include "tools/inputs.hpp"
#include "tools/judge.hpp"
#include "tools/progress.hpp"

namespace tandem::tools {
namespace {

Quantising quantising(Granularity granularity, bool hadamard, Dtype query_key = Dtype::e4m3) {
  Quantising how;
  Quantization& q = how.quantization;
  q.query = q.key = q.value = granularity;
  q.hadamard = hadamard;
  how.query_key = query_key;
  how.out = Dtype::fp16;  // an output of bf16 would add an error of its own
  return how;
}

/// A job of fp32 tensors (batch 1), the exact numbers.
Job exact_job(int64_t queries, int64_t keys, int64_t heads, int64_t dim,
              const std::function<float(int tensor, uint64_t index)>& number) {
  const auto tensor = [&](int which, int64_t rows) {
    std::vector<float> values(static_cast<size_t>(rows * heads * dim));
    for (size_t i = 0; i < values.size(); ++i) values[i] = number(which, i);
    return tensor_of(array_of(values, {1, rows, heads, dim}));
  };
  Job job;
  job.query = tensor(0, queries);
  job.key = tensor(1, keys);
  job.value = tensor(2, keys);
  job.out = poisoned(Dtype::fp16, {1, queries, heads, dim});
  return job;
}

/// Like a job, with query, key and value in fp16.
Job halved(const Job& exact) {
  Job job = exact;
  for (const auto tensor : {&Job::query, &Job::key, &Job::value}) {
    job.*tensor = tensor_of(convert(array_of(exact.*tensor), Dtype::fp16));
  }
  job.out = poisoned(Dtype::fp16, shape_of(exact.out.spec));
  return job;
}

/// What a method's result differs by, summed over elements.
struct Error {
  double squares = 0, exact_squares = 0, cross = 0, count = 0;
  std::string note;

  double rmse() const { return count > 0 ? std::sqrt(squares / count) : 0; }
};

/// Exact attention on some rows, with which methods are compared.
class Reference {
 public:
  Reference(const Job& exact, int64_t rows, uint64_t seed) : problem_(oracle_problem(exact)) {
    const int64_t all = exact.query.spec.size[1] * exact.query.spec.size[2];
    rows_ = rows >= all ? oracle::all_rows(problem_) : oracle::sampled_rows(problem_, rows, seed);
    exact_ = oracle::forward(problem_, rows_);
  }

  Error compare(const Tensor& out) const {
    const oracle::Tensor computed = oracle_view(out);
    Error error;
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (int64_t c = 0; c < problem_.value_dim; ++c) {
        const double exact = exact_[r].out[static_cast<size_t>(c)];
        const double x = computed.at(rows_[r].batch, rows_[r].query, rows_[r].head, c);
        error.squares += (x - exact) * (x - exact);
        error.exact_squares += exact * exact;
        error.cross += x * exact;
        error.count += 1;
      }
    }
    return error;
  }

 private:
  oracle::Problem problem_;
  std::vector<oracle::RowIndex> rows_;
  std::vector<oracle::Row> exact_;
};

/// Attention by a method; the note says why there is none.
Error run_method(const Job& half, const std::optional<Quantising>& how, Backend backend, Memory& memory,
                 const Reference& reference) {
  try {
    Job job = how ? quantise(half, *how, backend, memory) : half;
    job.problem.options.backend = backend;
    const auto planned = plan(Pass::forward, problem_of(job, memory.device()));
    require(planned.status(), "planning");
    Execution execution(job, *planned, memory);
    require(execution.run(), "running");
    execution.fetch(job);
    return reference.compare(job.out);
  } catch (const Failure& failure) {
    Error error;
    error.note = failure.what();
    return error;
  }
}

}  // namespace

std::vector<Method> methods() {
  using enum Granularity;
  return {
      {"fp16", "16 bits", std::nullopt},
      {"fp8", "scales of blocks, Hadamard", quantising(block, true)},
      {"fp8-per-tensor", "one scale a tensor, no Hadamard", quantising(tensor, false)},
      {"fp8-no-block", "one scale a tensor, Hadamard", quantising(tensor, true)},
      {"fp8-no-incoherent", "scales of blocks, no Hadamard", quantising(block, false)},
      {"int8-qk", "as fp8, query and key in int8", quantising(block, true, Dtype::int8)},
  };
}

std::vector<AccuracyRow> measure_paper(const AccuracyOptions& options, Memory& memory) {
  const std::vector<Method> all = methods();
  std::vector<AccuracyRow> rows;
  rows.reserve(all.size());
  for (const Method& method : all) rows.push_back({"paper", method.name, 0, ""});
  Progress progress(static_cast<size_t>(options.seeds) * all.size());
  for (int seed = 0; seed < options.seeds; ++seed) {
    const Job exact =
        exact_job(options.keys, options.keys, options.heads, options.head_dim, [&](int which, uint64_t i) {
          const uint64_t stream = 16 * static_cast<uint64_t>(seed) + 4 * static_cast<uint64_t>(which) + 1;
          const float outlier = oracle::uniform(stream + 2, i) < 0.001 ? 10 * oracle::normal(stream + 1, i) : 0;
          return oracle::normal(stream, i) + outlier;
        });
    const Job half = halved(exact);
    const Reference reference(exact, options.rows * options.heads, static_cast<uint64_t>(seed) + 1);
    for (size_t m = 0; m < all.size(); ++m) {
      progress.step(fmt::format("paper, seed {}, {}", seed, all[m].name));
      const Error error = run_method(half, all[m].how, options.backend, memory, reference);
      rows[m].rmse += error.rmse() / options.seeds;
      if (rows[m].note.empty()) rows[m].note = error.note;
    }
  }
  return rows;
}

std::vector<AccuracyRow> measure_real(const AccuracyOptions& options, Memory& memory) {
  InputOptions input;
  input.input = options.input;
  input.layer = options.layer;
  input.dtype = Dtype::fp32;
  Job exact = load_job(input);
  exact.problem.mask.causal = true;
  exact.lse = {};
  const Job half = halved(exact);
  const Reference reference(exact, options.rows * exact.query.spec.size[2], 1);
  const std::vector<Method> all = methods();
  std::vector<AccuracyRow> rows;
  Progress progress(all.size());
  for (const Method& method : all) {
    progress.step(fmt::format("real, {}", method.name));
    const Error error = run_method(half, method.how, options.backend, memory, reference);
    rows.push_back({"real", method.name, error.rmse(), error.note});
  }
  return rows;
}

std::vector<LengthRow> measure_lengths(const AccuracyOptions& options, Memory& memory) {
  struct Variant {
    const char* name;
    bool mean, promote;
  };
  constexpr int64_t queries = 64;
  const Variant variants[] = {
      {"fp8", true, true}, {"fp8-mean-kept", false, true}, {"fp8-mean-kept-no-promotion", false, false}};
  std::vector<LengthRow> rows;
  Progress progress(options.lengths.size() * 2 * std::size(variants));
  for (const int64_t keys : options.lengths) {
    for (const double mean : {0.0, 1.0}) {
      const Job exact = exact_job(queries, keys, 1, options.head_dim, [&](int which, uint64_t i) {
        return oracle::normal(900 + static_cast<uint64_t>(which), i) + static_cast<float>(which == 2 ? mean : 0);
      });
      const Job half = halved(exact);
      const Reference reference(exact, queries, 1);
      for (const Variant& variant : variants) {
        progress.step(fmt::format("{} keys, value mean {}, {}", keys, mean, variant.name));
        Quantising how = quantising(Granularity::block, true);
        how.quantization.value_mean = variant.mean;
        how.quantization.promote = variant.promote;
        const Error e = run_method(half, how, options.backend, memory, reference);
        rows.push_back({keys, mean, variant.name, e.rmse(), e.count > 0 ? std::sqrt(e.squares / e.exact_squares) : 0,
                        e.count > 0 ? 1 - e.cross / e.exact_squares : 0, e.note});
      }
    }
  }
  return rows;
}

}  // namespace tandem::tools
