// tandem trace: the timeline of one block of a Hopper kernel, as the emulator sees it.
#include <fmt/format.h>

#include "common/emulator_records.hpp"
#include "tools/commands.hpp"
#include "tools/failure.hpp"
#include "tools/input_options.hpp"
#include "tools/io/file.hpp"
#include "tools/io/list.hpp"
#include "tools/trace/timeline.hpp"

namespace tandem::tools {
namespace {

struct TraceOptions {
  InputOptions inputs;
  Mask mask;
  std::string dtype, window;
  std::string json_path, picture_path, cycles;
};

/// Runs the job in the emulator; the trace in Chrome's format.
std::string run_traced(const Job& job) {
  const auto memory = host_memory();
  auto planned = plan(Pass::forward, problem_of(job, memory->device()));
  require(planned.status(), "planning");
  Execution execution(job, *planned, *memory);
  internal::EmulatorRecords& records = internal::emulator_records;
  records.wants_trace = true;
  const Status status = execution.run();
  records.wants_trace = false;
  require(status, "running");
  return std::move(records.trace);
}

void trace(TraceOptions options) {
  if (options.json_path.empty() && options.picture_path.empty())
    throw UsageError("nothing to write: give --json or --plot");
  if (!options.picture_path.empty() && !ends_with(options.picture_path, ".svg")) {
    throw UsageError(fmt::format("--plot: '{}' must end in .svg", options.picture_path));
  }
  std::vector<int64_t> cycles;
  if (!options.cycles.empty()) cycles = parse_integers(options.cycles, "--cycles", 2);
  for (const auto& path : {options.json_path, options.picture_path}) {
    if (!path.empty()) require_writable(path);
  }
  require(available(Backend::emulator), "the backend emulator can't run here");
  if (!options.dtype.empty()) options.inputs.dtype = dtype_of(options.dtype);
  Job job = load_job(options.inputs);
  if (!options.window.empty()) set_window(options.mask, options.window);
  job.problem.mask = options.mask;
  job.problem.options.backend = Backend::emulator;
  job.problem.options.emulator_seed = options.inputs.seed;
  const std::string json = run_traced(job);
  const auto spans = parse_trace(json, "the emulator's trace");
  if (spans.empty()) throw Failure("the emulator recorded no events");
  if (!options.json_path.empty()) write_file(options.json_path, json);
  const std::string shape = to_string(shape_of(job.query.spec));
  const std::string title =
      fmt::format("A block of forward attention, query {} {}{}{}", shape, name(job.query.spec.dtype),
                  options.mask.causal ? ", causal" : "", options.window.empty() ? "" : ", window " + options.window);
  if (!options.picture_path.empty()) {
    const auto shown =
        cycles.empty() ? spans : within(spans, static_cast<double>(cycles[0]), static_cast<double>(cycles[1]));
    if (shown.empty()) throw Failure(fmt::format("--cycles {}: nothing happens then", options.cycles));
    write_file(options.picture_path, draw_timeline(shown, title));
  }
  fmt::print("{}: {} events\n", title, spans.size());
  for (const auto& path : {options.json_path, options.picture_path}) {
    if (!path.empty()) fmt::print("wrote {}\n", path);
  }
}

}  // namespace

void add_trace(CLI::App& program) {
  auto options = std::make_shared<TraceOptions>();
  options->inputs.random = "1,512,1,128";
  CLI::App* command =
      program.add_subcommand("trace", "Show what each warp of a Hopper kernel does when (in the emulator)");
  add_random_options(*command, options->inputs, options->dtype, "Input");
  add_mask_options(*command, options->mask, options->window, "Problem");
  command->add_option("--seed", options->inputs.seed, "Seed of the emulator's schedule");
  command->add_option("--json", options->json_path, "Write a Chrome trace (chrome://tracing, ui.perfetto.dev)")
      ->type_name("T.json");
  command->add_option("--plot", options->picture_path, "Draw the timeline")->type_name("T.svg");
  command->add_option("--cycles", options->cycles, "Draw only this part")->type_name("FROM,TO");
  command->footer(
      "One row a warpgroup, the tensor core and the copy unit. The producer runs ahead of the consumers by the stages; "
      "the\n"
      "consumers take turns in the tensor core, one in softmax while the other multiplies. S = Q K^T has both "
      "operands\n"
      "in shared memory (SS), O += P V has P in registers (RS). Cycles are those of the emulator's model: good for\n"
      "learning, not tuning. Without --random: 1,512,1,128.\n"
      "Examples:\n"
      "  tandem trace --plot timeline.svg\n"
      "  tandem trace --random 1,1024,1,128 --causal --json timeline.json --plot timeline.svg --cycles 2000,8000\n"
      "  tandem trace --random 1,700,4,64 --key-heads 1 --dtype fp16 --window 128,0 --plot window.svg");
  command->callback([options] { trace(*options); });
}

}  // namespace tandem::tools
