// Timing of a case.
#include "tools/bench/benchmark.hpp"

#include <algorithm>
#include <cmath>

#include "tools/failure.hpp"
#include "tools/inputs.hpp"

namespace tandem::tools {
namespace {

enum { query, key, value, out, grad_out, grad_query, grad_key, grad_value, tensor_count };

constexpr double shortest_sample = 2e-3;  // seconds: a thousand times the resolution of an event
constexpr int most_runs = 200;

double teraflops(double flop, const Timing& timing) { return flop / timing.median * 1e-12; }

}  // namespace

void fill_random(Memory& memory, const Buffer& buffer, Dtype dtype, uint64_t seed) {
  constexpr int64_t block_elements = (1 << 20) + 24;
  const Array block = random_array({block_elements}, dtype, seed);
  for (size_t at = 0; at < buffer.bytes(); at += block.bytes.size()) {
    memory.upload(buffer.data() + at, block.bytes.data(), std::min(block.bytes.size(), buffer.bytes() - at));
  }
}

Timing measure(Memory& memory, int samples, const std::function<void()>& enqueue) {
  enqueue();
  memory.synchronize();
  const double once = std::max(memory.seconds(enqueue), 1e-7);
  const int runs = std::clamp(static_cast<int>(std::ceil(shortest_sample / once)), 1, most_runs);
  std::vector<double> seconds;
  seconds.reserve(static_cast<size_t>(samples));
  for (int i = 0; i < samples; ++i) {
    seconds.push_back(memory.seconds([&] {
      for (int run = 0; run < runs; ++run) enqueue();
    }) / runs);
  }
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double part) {
    return seconds[static_cast<size_t>(part * static_cast<double>(seconds.size() - 1))];
  };
  return {at(0.5), (at(0.9) - at(0.1)) / at(0.5)};
}

Benchmark::Benchmark(Memory& memory, Backend backend, int threads, int samples, const std::vector<BenchCase>& cases)
    : memory_(memory), backend_(backend), threads_(threads), samples_(samples) {
  size_t elements = 0, rows = 0;
  bool backward = false;
  for (const BenchCase& c : cases) {
    const auto of_lse = static_cast<size_t>(c.batch * c.seqlen * c.heads);
    rows = std::max(rows, of_lse);
    elements = std::max(elements, of_lse * static_cast<size_t>(c.head_dim));
    backward = backward || c.pass == Pass::backward;
  }
  const Dtype dtype = cases.empty() ? Dtype::bf16 : cases[0].dtype;
  const int count = backward ? int{tensor_count} : int{grad_out};
  for (int i = 0; i < count; ++i) {
    tensors_.emplace_back(memory, elements * size_of(dtype));
    fill_random(memory, tensors_.back(), dtype, static_cast<uint64_t>(i) + 1);
  }
  lse_ = Buffer(memory, rows * sizeof(float));
  if (backend != Backend::sm90) {
    cublas_note_ = standard_note_ = "measured on the GPU only";
    return;
  }
  cublas_ = Cublas::open(memory, &cublas_note_);
  standard_ = StandardAttention::open(memory, cublas_.get(), &standard_note_);
}

Problem Benchmark::problem_of(const BenchCase& c, Arguments* arguments) const {
  const auto spec = contiguous(c.dtype, memory_.device(), {c.batch, c.seqlen, c.heads, c.head_dim});
  Problem problem;
  problem.query = problem.key = problem.value = problem.out = spec;
  problem.lse = contiguous(Dtype::fp32, memory_.device(), {c.batch, c.heads, c.seqlen});
  problem.mask.causal = c.causal;
  problem.options.backend = backend_;
  problem.options.threads = threads_;
  arguments->query = {spec, tensors_[query].data()};
  arguments->key = {spec, tensors_[key].data()};
  arguments->value = {spec, tensors_[value].data()};
  arguments->out = {spec, tensors_[out].data()};
  arguments->lse = {problem.lse, lse_.data()};
  return problem;
}

Timing Benchmark::time(const BenchCase& c, const MakePlan& make) {
  Arguments arguments;
  Problem problem = problem_of(c, &arguments);
  Pass pass = Pass::forward;
  const auto prepare = [&] {
    auto planned = make(pass, problem);
    require(planned.status(), c.name());
    return std::move(*planned);
  };
  if (c.pass == Pass::backward) {  // needs the forward's results
    const Plan forward = prepare();
    const Buffer workspace(memory_, forward.workspace_bytes());
    require(forward.run(arguments, workspace.data(), workspace.bytes(), memory_.stream()), c.name());
    memory_.synchronize();
    pass = Pass::backward;
    problem.grad_out = problem.grad_query = problem.grad_key = problem.grad_value = problem.out;
    arguments.grad_out = {problem.out, tensors_[grad_out].data()};
    arguments.grad_query = {problem.out, tensors_[grad_query].data()};
    arguments.grad_key = {problem.out, tensors_[grad_key].data()};
    arguments.grad_value = {problem.out, tensors_[grad_value].data()};
  }
  const Plan plan = prepare();
  const Buffer workspace(memory_, plan.workspace_bytes());
  return measure(memory_, samples_, [&] {
    require(plan.run(arguments, workspace.data(), workspace.bytes(), memory_.stream()), c.name());
  });
}

BenchRow Benchmark::run(const BenchCase& c, const MakePlan& make) {
  BenchRow row;
  row.problem = c;
  try {
    const Timing timing = time(c, make);
    row.tandem = teraflops(c.flop(), timing);
    row.spread = timing.spread;
  } catch (const Failure& failure) {
    row.note = failure.what();
  }
  return row;
}

BenchRow Benchmark::run(const BenchCase& c) {
  BenchRow row = run(c, [](Pass pass, const Problem& problem) { return plan(pass, problem); });
  row.cublas = ceiling(c.dtype);
  row.standard = standard(c);
  return row;
}

std::optional<double> Benchmark::ceiling(Dtype dtype) {
  if (cublas_ == nullptr || dtype == Dtype::fp32) return {};
  constexpr int size = 8192;
  constexpr size_t bytes = size_t{size} * size * 2;
  Buffer a(memory_, bytes), b(memory_, bytes);
  const Buffer c(memory_, bytes);
  fill_random(memory_, a, dtype, 11);
  fill_random(memory_, b, dtype, 12);
  const auto matrix = [](const Buffer& buffer) { return Matrix{buffer.data(), size, 0}; };
  const Timing timing = measure(
      memory_, samples_, [&] { cublas_->multiply(dtype, true, size, size, size, matrix(a), matrix(b), matrix(c), 1); });
  return teraflops(2.0 * size * size * size, timing);
}

std::optional<double> Benchmark::standard(const BenchCase& c) {
  if (standard_ == nullptr || c.pass != Pass::forward || c.dtype == Dtype::fp32) return {};
  try {
    const Buffer scores(memory_, StandardAttention::scores_bytes(c));
    return teraflops(c.flop(), measure(memory_, samples_, [&] {
                       standard_->run(c, tensors_[query].data(), tensors_[key].data(), tensors_[value].data(),
                                      tensors_[out].data(), scores.data());
                     }));
  } catch (const Failure& failure) {  // the scores of a long sequence may not fit
    standard_note_ = failure.what();
    return {};
  }
}

}  // namespace tandem::tools
