// tandem run: attention on the user's own tensors.
#include <fmt/format.h>

#include <cstdio>

#include "common/emulator_records.hpp"
#include "tools/accuracy/measure.hpp"
#include "tools/commands.hpp"
#include "tools/failure.hpp"
#include "tools/input_options.hpp"
#include "tools/io/file.hpp"
#include "tools/io/list.hpp"
#include "tools/io/npy.hpp"
#include "tools/io/safetensors.hpp"
#include "tools/judge.hpp"

namespace tandem::tools {
namespace {

struct RunOptions {
  InputOptions inputs;
  Problem problem;
  std::string window, dtype;
  std::string output, lse, grad_query, grad_key, grad_value;
  bool backward = false, check = false, explain = false;
  std::string fp8;  // a method

  bool wants_backward() const {
    return backward || !inputs.grad_out.empty() || !grad_query.empty() || !grad_key.empty() || !grad_value.empty();
  }
};

/// A plan, the memory it works on, and a line that says why this backend if it wasn't asked for by name.
struct Choice {
  Plan plan;
  std::unique_ptr<Memory> memory;
  std::string note;
};

Result<Plan> try_plan(const Job& job, Backend backend, const Memory& memory) {
  Problem problem = problem_of(job, memory.device());
  problem.options.backend = backend;
  return plan(job.pass, problem);
}

Choice choose(const Job& job) {
  const Backend wanted = job.problem.options.backend;
  std::string note;
  if (wanted == Backend::automatic) {
    Status status = available(Backend::sm90);
    if (status.ok()) {
      auto memory = memory_for(Backend::sm90);
      auto planned = try_plan(job, Backend::sm90, *memory);
      if (planned.ok()) return {*planned, std::move(memory), "chosen by auto"};
      if (planned.status().code != Code::unsupported) require(planned.status(), "planning");
      status = planned.status();
    }
    note = fmt::format("chosen by auto, not sm90: {}", text(status));
  } else {
    require(available(wanted), fmt::format("the backend {} can't run here", name(wanted)));
  }
  const Backend backend = wanted == Backend::automatic ? Backend::cpu : wanted;
  auto memory = memory_for(backend);
  auto planned = try_plan(job, backend, *memory);
  require(planned.status(), "planning");
  return {*planned, std::move(memory), note};
}

/// A run that the emulator found faults in says all of them; its Status has room for one.
void require_run(const Status& status) {
  const auto& reports = internal::emulator_records.reports;
  if (status.ok() || reports.empty()) return require(status, "running");
  std::fflush(stdout);
  for (const std::string& report : reports) fmt::print(stderr, "{}\n", report);
  throw Failure(fmt::format("running: the emulator found {} fault{}", reports.size(), reports.size() == 1 ? "" : "s"));
}

/// Runs the job, prints what was done, and brings the results back.
void execute(Job& job, const RunOptions& options) {
  Choice choice = choose(job);
  if (options.explain) fmt::print("{}\n", choice.plan.describe());
  const Backend backend = choice.plan.backend();
  Execution execution(job, choice.plan, *choice.memory);
  const auto once = [&] { require_run(execution.run()); };
  const bool gpu = backend == Backend::sm90;
  if (gpu) once();  // the first launch on a device pays for loading the kernel
  const double seconds = choice.memory->seconds(once);
  execution.fetch(job);
  fmt::print("{} on {} ({}){}\n", job.pass == Pass::forward ? "forward" : "backward", name(backend),
             choice.memory->device_name(), choice.note.empty() ? "" : "; " + choice.note);
  fmt::print("  time        {:.4g} ms", seconds * 1e3);
  // A speed of the emulator would say nothing about any machine.
  if (backend != Backend::emulator) fmt::print(", {:.4g} TFLOP/s", flop(job) / seconds * 1e-12);
  fmt::print("\n");
}

/// The job in 8 bits, quantised by the library on the backend that will run it.
Job quantised(const Job& job, const std::string& method) {
  Backend backend = job.problem.options.backend;
  if (backend == Backend::automatic) backend = available(Backend::sm90).ok() ? Backend::sm90 : Backend::cpu;
  require(available(backend), fmt::format("the backend {} can't run here", name(backend)));
  const auto memory = memory_for(backend);
  for (const Method& known : methods()) {
    if (known.name == method && known.how) return quantise(job, *known.how, backend, *memory);
  }
  throw UsageError(fmt::format("--fp8: there is no method '{}'", method));
}

void print_problem(const Job& job) {
  for (const Role& role : roles()) {
    const Tensor& tensor = job.*role.tensor;
    if (!tensor.present() || role.written(job.pass)) continue;
    fmt::print("  {:<12}{} {}\n", role.name, to_string(shape_of(tensor.spec)), name(tensor.spec.dtype));
  }
  const Mask& mask = job.problem.mask;
  std::string text = mask.causal ? "causal" : "none";
  if (mask.left != -1 || mask.right != -1) {
    text = fmt::format("{}window {},{}", mask.causal ? "causal, " : "", mask.left, mask.right);
  }
  fmt::print("  mask        {}\n", text);
}

double query_rows(const Job& job) {
  double rows = 0;
  for (const int64_t count : sequences(job).query_count) rows += static_cast<double>(count);
  return rows * static_cast<double>(job.query.spec.size[static_cast<size_t>(job.query.spec.rank - 2)]);
}

void check_affordable(const Job& job) {
  if (query_rows(job) * static_cast<double>(sequences(job).max_key) > 1e8)
    throw Failure(
        "--check of the backward pass needs float64 gradients of everything; this problem is too large for it");
}

/// Judges the job; true if all is well.
bool check(const Job& job) {
  constexpr double operations = 1e9;  // about two seconds of the oracle
  const int64_t rows = affordable_rows(job, operations);
  const double all = query_rows(job);
  const auto verdict = judge(job, rows);
  const bool sampled = job.pass == Pass::forward && static_cast<double>(rows) < all;
  fmt::print("check against float64 ({} rows): {}\n", sampled ? fmt::format("{} of {:.0f}", rows, all) : "all",
             verdict.ok ? "passed" : "FAILED");
  fmt::print("  max error   {:.3g} (bound {:.3g}; {}: {:.3g})\n", verdict.error, verdict.bound,
             eight_bits(job.query.spec.dtype) ? "of the same 8-bit tensors, rounding probabilities alone"
                                              : "standard attention in this dtype",
             verdict.standard_error);
  fmt::print("  cosine      1 - {:.2g}\n", 1 - verdict.cosine);
  if (job.pass == Pass::forward) fmt::print("  lse error   {:.3g}\n", verdict.lse_error);
  if (!verdict.ok) fmt::print("  {}\n", verdict.text);
  return verdict.ok;
}

void write_npy_of(const Tensor& tensor, const std::string& path) {
  if (path.empty()) return;
  write_npy(path, array_of(tensor));
  fmt::print("wrote {}\n", path);
}

void write_results(const Job& job, const RunOptions& options) {
  if (ends_with(options.output, ".safetensors")) {
    write_safetensors(options.output, {{"out", array_of(job.out)}, {"lse", array_of(job.lse)}});
    fmt::print("wrote {}\n", options.output);
  } else {
    write_npy_of(job.out, options.output);
  }
  write_npy_of(job.lse, options.lse);
}

/// Faults that would otherwise show only after the work is done.
void check_outputs(const RunOptions& options) {
  const auto check_path = [](const std::string& path, const char* option, bool safetensors) {
    if (path.empty()) return;
    if (!ends_with(path, ".npy") && !(safetensors && ends_with(path, ".safetensors"))) {
      throw UsageError(fmt::format("{}: '{}' must end in .npy{}", option, path, safetensors ? " or .safetensors" : ""));
    }
    require_writable(path);
  };
  check_path(options.output, "--output", true);
  check_path(options.lse, "--lse", false);
  check_path(options.grad_query, "--grad-query", false);
  check_path(options.grad_key, "--grad-key", false);
  check_path(options.grad_value, "--grad-value", false);
}

void run(RunOptions options) {
  if (!options.dtype.empty()) options.inputs.dtype = dtype_of(options.dtype);
  if (!options.window.empty()) set_window(options.problem.mask, options.window);
  options.problem.options.emulator_seed = options.inputs.seed;
  check_outputs(options);
  Job job = load_job(options.inputs);
  job.problem = options.problem;
  if (!options.fp8.empty()) {
    if (options.wants_backward()) throw UsageError("--fp8: 8-bit attention is forward only");
    if (job.query.spec.dtype == Dtype::fp32) throw UsageError("--fp8: the quantiser reads bf16 or fp16; give --dtype");
    job = quantised(job, options.fp8);
  }
  print_problem(job);
  if (options.check && options.wants_backward()) check_affordable(job);
  const Array grad_out = options.wants_backward() ? read_gradient(job, options.inputs) : Array{};
  execute(job, options);
  bool passed = !options.check || check(job);
  write_results(job, options);
  if (options.wants_backward()) {
    Job backward = backward_job(job, grad_out);
    execute(backward, options);
    if (options.check) passed = check(backward) && passed;
    write_npy_of(backward.grad_query, options.grad_query);
    write_npy_of(backward.grad_key, options.grad_key);
    write_npy_of(backward.grad_value, options.grad_value);
  }
  if (!passed) throw Failure("the result is outside its bounds");
}

constexpr const char* examples =
    "Examples:\n"
    "  tandem run --input examples/data/smollm2_layer18.safetensors --causal --check\n"
    "  tandem run --query Q.npy --key K.npy --value V.npy --dtype bf16 --output O.npy --lse L.npy\n"
    "  tandem run --random 2,4096,16,128 --key-heads 4 --window 1024,0 --explain --check\n"
    "  tandem run --random 1,300,8,64 --cu-seqlens-q 0,100,300 --cu-seqlens-k 0,100,300 --causal\n"
    "  tandem run --random 1,256,2,128 --backend emulator --seed 7 --check\n"
    "  tandem run --random 1,4096,8,128 --fp8 fp8 --check\n"
    "  tandem run --query Q.npy --key K.npy --value V.npy --grad-output DO.npy --grad-query DQ.npy\n"
    "Tensors are (batch, seqlen, heads, head_dim), or packed (total, heads, head_dim) with --cu-seqlens-*.";

void add_inputs(CLI::App& command, RunOptions& o) {
  const char* group = "Input";
  command.add_option("--query", o.inputs.query, "Queries")->type_name("Q.npy")->group(group);
  command.add_option("--key", o.inputs.key, "Keys")->type_name("K.npy")->group(group);
  command.add_option("--value", o.inputs.value, "Values")->type_name("V.npy")->group(group);
  command.add_option("--input", o.inputs.input, "A file of tensors PREFIX.query, .key and .value")
      ->type_name("F.safetensors")
      ->group(group);
  command.add_option("--layer", o.inputs.layer, "Which PREFIX; needed where there are several")
      ->type_name("PREFIX")
      ->group(group);
  add_random_options(command, o.inputs, o.dtype, group);
  command.add_option("--seqused-q", o.inputs.used_query, "Used query lengths")->type_name("LIST")->group(group);
  command.add_option("--seqused-k", o.inputs.used_key, "Used key lengths")->type_name("LIST")->group(group);
  command.add_option("--grad-output", o.inputs.grad_out, "Gradient of the output: run the backward pass too")
      ->type_name("DO.npy")
      ->group(group);
  command.add_option("--seed", o.inputs.seed, "Seed of random tensors and of the emulator's schedule")->group(group);
}

void add_problem(CLI::App& command, RunOptions& o) {
  const char* group = "Problem";
  add_mask_options(command, o.problem.mask, o.window, group);
  command.add_option("--scale", o.problem.scale, "Softmax scale; otherwise 1 / sqrt(head_dim)")->group(group);
  command.add_option("--softcap", o.problem.softcap, "Soft cap of the scores")->group(group);
  command.add_flag("--backward", o.backward, "Run the backward pass too, with a random gradient of the output")
      ->group(group);
  command.add_flag("--deterministic", o.problem.options.deterministic, "Backward: sums in a fixed order")->group(group);
  add_fp8_option(command, o.fp8, "Quantise, then attend")->group(group);
  add_backend_option(command, o.problem.options.backend)->group(group);
  command.add_option("--threads", o.problem.options.threads, "CPU threads; otherwise all")
      ->check(CLI::Range(1, 1 << 16))
      ->group(group);
}

void add_outputs(CLI::App& command, RunOptions& o) {
  const char* group = "Output";
  command.add_option("--output", o.output, "Write the output (bf16 becomes float32 in .npy)")
      ->type_name("O.npy|O.safetensors")
      ->group(group);
  command.add_option("--lse", o.lse, "Write the log-sum-exp")->type_name("L.npy")->group(group);
  command.add_option("--grad-query", o.grad_query, "Write the gradient of query")->type_name("DQ.npy")->group(group);
  command.add_option("--grad-key", o.grad_key, "Write the gradient of key")->type_name("DK.npy")->group(group);
  command.add_option("--grad-value", o.grad_value, "Write the gradient of value")->type_name("DV.npy")->group(group);
  command.add_flag("--check", o.check, "Compare with float64 attention (sampled rows on large inputs)")->group(group);
  command.add_flag("--explain", o.explain, "Print the plan")->group(group);
}

}  // namespace

void add_run(CLI::App& program) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = program.add_subcommand("run", "Run attention on tensors from files, or on random ones");
  add_inputs(*command, *options);
  add_problem(*command, *options);
  add_outputs(*command, *options);
  command->footer(examples);
  command->callback([options] { run(*options); });
}

}  // namespace tandem::tools
