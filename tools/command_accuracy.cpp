// tandem accuracy: the error of 8-bit attention by each method, on the paper's distribution, on real tensors, and over
// the number of keys.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "tools/accuracy/report.hpp"
#include "tools/bench/plot.hpp"
#include "tools/commands.hpp"
#include "tools/failure.hpp"
#include "tools/io/file.hpp"
#include "tools/io/list.hpp"

namespace tandem::tools {
namespace {

struct CommandOptions {
  AccuracyOptions accuracy;
  std::string lengths, json_path, plot_path, data = "both";
  bool quick = false;
};

constexpr const char* default_input = "examples/data/smollm2_layer18.safetensors";

void accuracy(CommandOptions options) {
  AccuracyOptions& o = options.accuracy;
  if (!options.plot_path.empty()) require_plot(options.plot_path);
  if (!options.json_path.empty()) require_writable(options.json_path);
  if (o.backend == Backend::automatic) o.backend = available(Backend::sm90).ok() ? Backend::sm90 : Backend::cpu;
  require(available(o.backend), fmt::format("the backend {} can't run here", name(o.backend)));
  if (options.quick) {
    o.keys = std::min<int64_t>(o.keys, 1024);
    o.rows = std::min<int64_t>(o.rows, 64);
    o.seeds = std::min(o.seeds, 2);
  }
  if (options.lengths != "none") {
    o.lengths = options.lengths.empty() ? (options.quick ? std::vector<int64_t>{1024, 4096}
                                                         : std::vector<int64_t>{1024, 4096, 16384, 131072})
                                        : parse_integers(options.lengths, "--lengths");
    for (const int64_t length : o.lengths) {
      if (length < 1 || length > 1 << 24)
        throw UsageError(fmt::format("--lengths: {} keys are none to measure; 1 to {} are", length, 1 << 24));
    }
  }
  auto memory = memory_for(o.backend);
  fmt::print("{} on {}\n", name(o.backend), memory->device_name());
  std::fflush(stdout);
  std::vector<AccuracyRow> rows;
  if (options.data != "real") {
    fmt::print("paper: N(0, 1) + N(0, 100) * Bernoulli(0.001), {} keys, head dim {}, mean of {} seeds\n", o.keys,
               o.head_dim, o.seeds);
    rows = measure_paper(o, *memory);
  }
  if (options.data != "paper") {
    if (o.input.empty() && std::filesystem::exists(default_input)) o.input = default_input;
    if (o.input.empty() && options.data == "real") throw UsageError("--data real needs --input");
    if (o.input.empty()) fmt::print("real: no tensors here; give --input\n");
    if (!o.input.empty()) {
      fmt::print("real: {}, causal\n", o.input);
      const auto real = measure_real(o, *memory);
      rows.insert(rows.end(), real.begin(), real.end());
    }
  }
  const std::vector<LengthRow> lengths = measure_lengths(o, *memory);
  print_accuracy(rows, lengths);
  const std::string title = fmt::format("8-bit attention on {} ({})", memory->device_name(), name(o.backend));
  if (!options.json_path.empty()) {
    write_file(options.json_path, accuracy_json(rows, lengths, memory->device_name(), o.backend, TANDEM_COMMIT));
  }
  if (!options.plot_path.empty()) {
    draw([&](const std::string& output) { return accuracy_script(rows, lengths, title, options.plot_path, output); },
         options.plot_path);
  }
  size_t measured = 0;
  for (const AccuracyRow& row : rows) measured += row.note.empty() ? 1 : 0;
  if (!rows.empty() && measured == 0) throw Failure("no method could be measured");
}

}  // namespace

void add_accuracy(CLI::App& program) {
  auto o = std::make_shared<CommandOptions>();
  CLI::App* command = program.add_subcommand("accuracy", "Measure the error of 8-bit attention against float64");
  add_backend_option(*command, o->accuracy.backend);
  command->add_option("--data", o->data, "paper, real or both")->check(CLI::IsMember({"paper", "real", "both"}));
  command->add_option("--input", o->accuracy.input, "Real tensors PREFIX.query, .key and .value")
      ->type_name("F.safetensors");
  command->add_option("--layer", o->accuracy.layer, "Which PREFIX; needed where there are several")
      ->type_name("PREFIX");
  command->add_option("--keys", o->accuracy.keys, "Sequence length of the paper's data")
      ->check(CLI::Range(16, 1 << 20));
  command->add_option("--heads", o->accuracy.heads, "Heads of the paper's data")->check(CLI::Range(1, 256));
  command->add_option("--head-dim", o->accuracy.head_dim, "Head dim")->check(CLI::Range(8, 256));
  command->add_option("--rows", o->accuracy.rows, "Query rows of a head that are compared")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--seeds", o->accuracy.seeds, "Seeds")->check(CLI::Range(1, 1000));
  command->add_option("--lengths", o->lengths, "Numbers of keys for the study of long sequences, or none")
      ->type_name("LIST|none");
  command->add_flag("--quick", o->quick, "Shorter sequences, fewer seeds");
  command->add_option("--json", o->json_path, "Write the results")->type_name("FILE");
  command->add_option("--plot", o->plot_path, "Draw the results (needs gnuplot)")->type_name("FILE.png|.svg");
  command->footer(
      "The error is that of the result against float64 attention of the numbers before any rounding.\n"
      "Examples:\n"
      "  tandem accuracy --quick\n"
      "  tandem accuracy --backend cpu --lengths none --json accuracy.json\n"
      "  tandem accuracy --data real --input examples/data/smollm2_layer18.safetensors --plot accuracy.svg");
  command->callback([o] { accuracy(*o); });
}

}  // namespace tandem::tools
