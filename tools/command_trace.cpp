// tandem trace: the timeline of one block of a Hopper kernel, as the emulator sees it.
#include <fmt/format.h>

#include <cstdlib>

#include "tools/commands.hpp"
#include "tools/failure.hpp"
#include "tools/inputs.hpp"
#include "tools/io/file.hpp"
#include "tools/io/list.hpp"
#include "tools/trace/timeline.hpp"

namespace tandem::tools {
namespace {

struct TraceOptions {
  InputOptions inputs;
  bool causal = false;
  std::string json_path, picture_path, cycles;
};

std::string read_text(const std::string& path) {
  const Bytes bytes = read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void trace(const TraceOptions& options) {
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
  Job job = load_job(options.inputs);
  job.problem.mask.causal = options.causal;
  job.problem.options.backend = Backend::emulator;
  job.problem.options.emulator_seed = options.inputs.seed;
  const auto memory = host_memory();
  // The emulator takes the name of the file that it writes from the environment, when it plans.
  const TemporaryPath file("tandem-trace");
  setenv("TANDEM_EMULATOR_TRACE", file.path().c_str(), 1);
  auto planned = plan(Pass::forward, problem_of(job, memory->device()));
  unsetenv("TANDEM_EMULATOR_TRACE");
  require(planned.status(), "planning");
  Execution execution(job, *planned, *memory);
  require(execution.run(), "running");
  const std::string json = read_text(file.path());
  const auto spans = parse_trace(json, "the emulator's trace");
  if (spans.empty()) throw Failure("the emulator recorded no events");
  if (!options.json_path.empty()) write_file(options.json_path, json);
  const std::string shape = to_string(shape_of(job.query.spec));
  const std::string title = fmt::format("A block of forward attention, query {} {}{}", shape,
                                        name(job.query.spec.dtype), options.causal ? ", causal" : "");
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
  command->add_option("--random", options->inputs.random, "batch, seqlen, heads, head_dim; 1,512,1,128 otherwise")
      ->type_name("B,S,H,D");
  command->add_flag("--causal", options->causal, "Causal mask");
  command->add_option("--seed", options->inputs.seed, "Seed of the emulator's schedule");
  command->add_option("--json", options->json_path, "Write a Chrome trace (chrome://tracing, ui.perfetto.dev)")
      ->type_name("T.json");
  command->add_option("--plot", options->picture_path, "Draw the timeline")->type_name("T.svg");
  command->add_option("--cycles", options->cycles, "Draw only this part")->type_name("FROM,TO");
  command->footer(
      "One row a warpgroup, the tensor core and the copy unit: the producer runs ahead, the consumers take turns in "
      "the\n"
      "tensor core while the other is in softmax. Cycles are those of the emulator's model: good for learning, not "
      "tuning.\n"
      "Examples:\n"
      "  tandem trace --plot timeline.svg\n"
      "  tandem trace --random 1,1024,1,128 --causal --json timeline.json --plot timeline.svg --cycles 2000,8000");
  command->callback([options] { trace(*options); });
}

}  // namespace tandem::tools
