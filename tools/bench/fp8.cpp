// See fp8.hpp.
#include "tools/bench/fp8.hpp"

#include "tools/failure.hpp"

namespace tandem::tools {
namespace {

size_t bytes_of(const TensorSpec& spec) {
  size_t bytes = size_of(spec.dtype);
  for (int i = 0; i < spec.rank; ++i) bytes *= static_cast<size_t>(spec.size[static_cast<size_t>(i)]);
  return bytes;
}

/// The tensors of a case on the device, and the two plans that use them.
class Fp8Case {
 public:
  Fp8Case(Memory& memory, Backend backend, int threads, const BenchCase& c, const Quantising& how) : memory_(memory) {
    Job source;  // specs alone: the tensors are made on the device
    const std::vector<int64_t> shape = {c.batch, c.seqlen, c.heads, c.head_dim};
    for (const auto tensor : {&Job::query, &Job::key, &Job::value, &Job::out}) {
      (source.*tensor).spec = contiguous(c.dtype, memory.device(), {c.batch, c.seqlen, c.heads, c.head_dim});
    }
    Job job = quantised_job(source, how);
    job.problem.mask.causal = c.causal;
    job.problem.options.backend = backend;
    job.problem.options.threads = threads;
    attend_ = make(Pass::forward, problem_of(job, memory.device()));
    allocate_scales(source, attend_->quantization(), job);
    Problem quantising = problem_of(quantise_job(source, job), memory.device());
    quantise_ = make(Pass::quantize, quantising);

    const Problem attending = problem_of(job, memory.device());
    place(attending.query, {&attend_arguments_.query, &quantise_arguments_.quantized_query});
    place(attending.key, {&attend_arguments_.key, &quantise_arguments_.quantized_key});
    place(attending.value, {&attend_arguments_.value, &quantise_arguments_.quantized_value});
    place(attending.query_scale, {&attend_arguments_.query_scale, &quantise_arguments_.query_scale});
    place(attending.key_scale, {&attend_arguments_.key_scale, &quantise_arguments_.key_scale});
    place(attending.value_scale, {&attend_arguments_.value_scale, &quantise_arguments_.value_scale});
    if (attending.value_mean.present()) {
      place(attending.value_mean, {&attend_arguments_.value_mean, &quantise_arguments_.value_mean});
    }
    place(attending.out, {&attend_arguments_.out});
    uint64_t seed = 1;
    for (TensorView* view : {&quantise_arguments_.query, &quantise_arguments_.key, &quantise_arguments_.value}) {
      place(source.query.spec, {view});
      fill_random(memory, buffers_.back(), c.dtype, seed++);
    }
    attend_workspace_ = Buffer(memory, attend_->workspace_bytes());
    quantise_workspace_ = Buffer(memory, quantise_->workspace_bytes());
  }

  void attend() { run(*attend_, attend_arguments_, attend_workspace_); }
  void quantise() { run(*quantise_, quantise_arguments_, quantise_workspace_); }

 private:
  static std::optional<Plan> make(Pass pass, const Problem& problem) {
    auto planned = plan(pass, problem);
    require(planned.status(), pass == Pass::forward ? "planning the 8-bit forward" : "planning the quantiser");
    return *planned;
  }
  void place(const TensorSpec& spec, std::initializer_list<TensorView*> views) {
    buffers_.emplace_back(memory_, bytes_of(spec));
    for (TensorView* view : views) *view = {spec, buffers_.back().data()};
  }
  void run(const Plan& plan, const Arguments& arguments, const Buffer& workspace) {
    require(plan.run(arguments, workspace.data(), workspace.bytes(), memory_.stream()), "running");
  }

  Memory& memory_;
  std::optional<Plan> attend_, quantise_;
  Arguments attend_arguments_, quantise_arguments_;
  std::vector<Buffer> buffers_;
  Buffer attend_workspace_, quantise_workspace_;
};

}  // namespace

Fp8Row measure_fp8(Memory& memory, Backend backend, int threads, int samples, const BenchCase& c,
                   const Quantising& how) {
  Fp8Row row{c, {}, {}, 0, 0, ""};
  try {
    Fp8Case fp8(memory, backend, threads, c, how);
    row.quantiser_seconds = measure(memory, samples, [&] { fp8.quantise(); }).median;
    const Timing attention = measure(memory, samples, [&] { fp8.attend(); });
    const Timing together = measure(memory, samples, [&] {
      fp8.quantise();
      fp8.attend();
    });
    row.attention = c.flop() / attention.median * 1e-12;
    row.together = c.flop() / together.median * 1e-12;
    row.spread = attention.spread;
  } catch (const Failure& failure) {
    row.note = failure.what();
  }
  return row;
}

}  // namespace tandem::tools
