// tandem bench: the paper's grid, beside the ceiling and standard attention in the same run.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/accuracy/measure.hpp"
#include "tools/bench/ablation.hpp"
#include "tools/bench/benchmark.hpp"
#include "tools/bench/fp8.hpp"
#include "tools/bench/plot.hpp"
#include "tools/bench/quantiser.hpp"
#include "tools/commands.hpp"
#include "tools/cuda_memory.hpp"
#include "tools/failure.hpp"
#include "tools/io/file.hpp"
#include "tools/io/list.hpp"
#include "tools/progress.hpp"

namespace tandem::tools {
namespace {

using nlohmann::json;

struct BenchOptions {
  Backend backend = Backend::automatic;
  std::string head_dims, lengths, mask = "both", dtype, json_path, plot_path;
  int64_t tokens = 0, hidden = 0;
  int samples = 0, threads = 0;
  bool backward = false, quick = false, ablation = false, plain_value = false, quantiser = false;
  std::string fp8;  // a method
};

std::vector<int64_t> positive_list(const std::string& text, const char* option, std::vector<int64_t> otherwise) {
  if (text.empty()) return otherwise;
  auto values = parse_integers(text, option);
  for (const int64_t value : values) {
    if (value < 1) throw UsageError(fmt::format("{}: {} is not positive", option, value));
  }
  return values;
}

Grid grid_of(const BenchOptions& o) {
  static const std::map<std::string, Dtype> dtypes = {
      {"fp32", Dtype::fp32}, {"fp16", Dtype::fp16}, {"bf16", Dtype::bf16}};
  const bool gpu = o.backend == Backend::sm90;
  Grid grid;
  grid.backward = o.backward;
  grid.dtype = o.dtype.empty() ? (gpu || !o.fp8.empty() ? Dtype::bf16 : Dtype::fp32) : dtypes.at(o.dtype);
  // A CPU would take minutes a case at the paper's sizes.
  grid.tokens = o.tokens != 0 ? o.tokens : gpu ? 16384 : o.quick ? 1024 : 4096;
  grid.hidden = o.hidden != 0 ? o.hidden : gpu ? 2048 : o.quick ? 256 : 512;
  if (o.ablation) {
    grid.head_dims = {128};
    grid.lengths = {16384};
    grid.masks = {false};
    return grid;
  }
  std::vector<int64_t> lengths;
  const int64_t first = gpu || o.quick ? 512 : 1024, factor = o.quick && gpu ? 4 : 2;
  for (int64_t length = first; length <= grid.tokens; length *= factor) {
    // The paper's FP8 grid: from 4,096 on, multiples of the number of an H100's multiprocessors.
    lengths.push_back(!o.fp8.empty() && length >= 4096 ? (length + 4223) / 4224 * 4224 : length);
  }
  if (lengths.empty()) lengths = {grid.tokens};
  grid.head_dims = positive_list(o.head_dims, "--head-dims",
                                 gpu ? std::vector<int64_t>{64, 128, 256} : std::vector<int64_t>{64, 128});
  grid.lengths = positive_list(o.lengths, "--seqlens", lengths);
  if (o.mask != "both") grid.masks = {o.mask == "causal"};
  return grid;
}

std::string cell(const std::optional<double>& value) {
  if (!value) return "-";
  return *value >= 100 ? fmt::format("{:.0f}", *value) : fmt::format("{:.3g}", *value);
}

void print_table(const std::vector<BenchRow>& rows) {
  fmt::print("{:<9}{:<6}{:>5} {:<7}{:>7}{:>6}{:>6}{:>9}{:>10}{:>9}{:>8}\n", "pass", "dtype", "d", "mask", "seqlen",
             "batch", "heads", "tandem", "standard", "cuBLAS", "spread");
  for (const BenchRow& row : rows) {
    const BenchCase& c = row.problem;
    fmt::print("{:<9}{:<6}{:>5} {:<7}{:>7}{:>6}{:>6}{:>9}{:>10}{:>9}{:>8}\n",
               c.pass == Pass::forward ? "forward" : "backward", name(c.dtype), c.head_dim,
               c.causal ? "causal" : "full", c.seqlen, c.batch, c.heads, cell(row.tandem), cell(row.standard),
               cell(row.cublas), row.tandem ? fmt::format("{:.1f}%", row.spread * 100) : "-");
  }
  fmt::print("TFLOP/s; spread is between the 10th and the 90th percentile of a row's samples\n");
}

json to_json(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

json results_json(const std::vector<BenchRow>& rows, const Memory& memory) {
  const CudaInfo info = cuda_info();
  json list = json::array();
  for (const BenchRow& row : rows) {
    const BenchCase& c = row.problem;
    list.push_back({{"pass", c.pass == Pass::forward ? "forward" : "backward"},
                    {"dtype", name(c.dtype)},
                    {"head_dim", c.head_dim},
                    {"mask", c.causal ? "causal" : "full"},
                    {"seqlen", c.seqlen},
                    {"batch", c.batch},
                    {"heads", c.heads},
                    {"tandem", to_json(row.tandem)},
                    {"cudnn", nullptr},
                    {"fa3", nullptr},
                    {"cublas", to_json(row.cublas)},
                    {"standard", to_json(row.standard)},
                    {"spread", to_json(row.tandem ? std::optional(row.spread) : std::nullopt)}});
    if (!row.kernel.empty()) list.back()["kernel"] = row.kernel;
    if (!row.note.empty()) list.back()["note"] = row.note;
  }
  const bool gpu = memory.device().kind == DeviceKind::cuda;
  const std::string toolkit = TANDEM_TOOLKIT;
  return {{"device", memory.device_name()},
          {"driver", gpu ? json(fmt::format("{}.{}", info.driver_version / 1000, info.driver_version % 1000 / 10))
                         : json(nullptr)},
          {"toolkit", toolkit.empty() ? json(nullptr) : json(toolkit)},
          {"commit", TANDEM_COMMIT},
          {"version", version()},
          {"rows", list}};
}

std::vector<BenchRow> run_ablation(Benchmark& benchmark, const BenchCase& c) {
  std::vector<BenchRow> rows;
  const auto kernels = ablation_kernels();
  Progress progress(kernels.size());
  std::string table = fmt::format("{}, batch {}, heads {}\n", c.name(), c.batch, c.heads);
  for (const AblationKernel& kernel : kernels) {
    progress.step(kernel.name);
    BenchRow row = benchmark.run(c, [&](Pass, const Problem& problem) { return ablation_plan(kernel, problem); });
    row.kernel = kernel.name;
    table += fmt::format("{:<36}{:>8} TFLOP/s  {}\n", kernel.name, cell(row.tandem),
                         row.note.empty() ? kernel.changes : row.note);
    rows.push_back(std::move(row));
  }
  progress.clear();
  fmt::print("{}", table);
  return rows;
}

std::vector<BenchRow> run_grid(Benchmark& benchmark, const std::vector<BenchCase>& cases) {
  std::vector<BenchRow> rows;
  Progress progress(cases.size());
  for (const BenchCase& c : cases) {
    progress.step(c.name());
    rows.push_back(benchmark.run(c));
  }
  progress.clear();
  return rows;
}

void check_ablation(const BenchOptions& options) {
  if (!options.plot_path.empty() || !options.head_dims.empty() || !options.lengths.empty() || options.backward)
    throw UsageError(
        "--ablation has one case, d128 full 16k, and no plot: leave --plot, --head-dims, --seqlens and --backward");
  if (options.backend != Backend::sm90)
    throw Failure("--ablation: its kernels are Hopper's; it needs the backend sm90");
  if (!ablation_compiled()) throw Failure("--ablation: this build has no ablation kernels (it was made without CUDA)");
}

json fp8_json(const std::vector<Fp8Row>& rows, const BenchOptions& o) {
  json list = json::array();
  for (const Fp8Row& row : rows) {
    const BenchCase& c = row.problem;
    list.push_back({{"pass", "forward"},
                    {"dtype", o.fp8 == "int8-qk" ? "int8" : "e4m3"},
                    {"method", o.fp8},
                    {"value_layout", o.plain_value ? "rows" : "packed"},
                    {"head_dim", c.head_dim},
                    {"mask", c.causal ? "causal" : "full"},
                    {"seqlen", c.seqlen},
                    {"batch", c.batch},
                    {"heads", c.heads},
                    {"tandem", to_json(row.attention)},
                    {"tandem_with_quantiser", to_json(row.together)},
                    {"quantiser_seconds", row.note.empty() ? json(row.quantiser_seconds) : json(nullptr)},
                    {"spread", to_json(row.attention ? std::optional(row.spread) : std::nullopt)}});
    if (!row.note.empty()) list.back()["note"] = row.note;
  }
  return list;
}

/// 8-bit attention over the grid, its quantiser apart and together.
void run_fp8(const BenchOptions& o, const std::vector<BenchCase>& cases, Memory& memory, int samples) {
  std::optional<Quantising> how;
  for (const Method& method : methods()) {
    if (method.name == o.fp8) how = method.how;
  }
  how->out = Dtype::bf16;
  if (o.plain_value) how->quantization.value_layout = ValueLayout::rows;
  std::vector<Fp8Row> rows;
  {
    Progress progress(cases.size());
    for (const BenchCase& c : cases) {
      progress.step(c.name());
      rows.push_back(measure_fp8(memory, o.backend, o.threads, samples, c, *how));
    }
  }
  fmt::print("{}: {}\n", o.fp8, describe(*how));
  fmt::print("{:>5} {:<7}{:>7}{:>6}{:>6}{:>11}{:>16}{:>14}{:>8}\n", "d", "mask", "seqlen", "batch", "heads",
             "attention", "with quantiser", "quantiser us", "spread");
  for (const Fp8Row& row : rows) {
    const BenchCase& c = row.problem;
    fmt::print("{:>5} {:<7}{:>7}{:>6}{:>6}{:>11}{:>16}{:>14}{:>8}{}\n", c.head_dim, c.causal ? "causal" : "full",
               c.seqlen, c.batch, c.heads, cell(row.attention), cell(row.together),
               row.attention ? fmt::format("{:.1f}", row.quantiser_seconds * 1e6) : "-",
               row.attention ? fmt::format("{:.1f}%", row.spread * 100) : "-", row.note.empty() ? "" : "  " + row.note);
  }
  fmt::print("TFLOP/s; attention is of tensors that are quantised already\n");
  if (!o.json_path.empty()) {
    json all = results_json({}, memory);
    all["rows"] = fp8_json(rows, o);
    write_file(o.json_path, all.dump(2) + "\n");
  }
  for (const Fp8Row& row : rows) {
    if (!row.attention) throw Failure("not every case could be measured");
  }
}

/// The quantiser's methods against a copy of as many bytes.
void run_quantiser(const BenchOptions& o, Memory& memory, int samples) {
  if (o.backend != Backend::sm90) throw Failure("--quantiser: the copy is a GPU's; it needs the backend sm90");
  const QuantiserReport report = measure_quantiser(memory, samples);
  fmt::print("{:<7}{:>5}{:>8}  {:<36}{:>8}{:>7}{:>9}{:>8}\n", "tensor", "d", "tokens", "method", "us", "TB/s",
             "of copy", "spread");
  json rows = json::array();
  for (const QuantiserRow& r : report.rows) {
    fmt::print("{:<7}{:>5}{:>8}  {:<36}{:>8.1f}{:>7.2f}{:>9.3f}{:>7.1f}%\n", r.tensor, r.head_dim, r.tokens, r.method,
               r.seconds * 1e6, r.bandwidth * 1e-12, r.of_copy, r.spread * 100);
    rows.push_back({{"tensor", r.tensor},
                    {"method", r.method},
                    {"head_dim", r.head_dim},
                    {"tokens", r.tokens},
                    {"seconds", r.seconds},
                    {"bytes", r.bytes},
                    {"of_copy", r.of_copy},
                    {"spread", r.spread}});
  }
  fmt::print("a copy reads and writes {:.2f} TB/s\n", report.copy_bandwidth * 1e-12);
  if (o.json_path.empty()) return;
  json all = results_json({}, memory);
  all["copy_bytes_per_second"] = report.copy_bandwidth;
  all["rows"] = rows;
  write_file(o.json_path, all.dump(2) + "\n");
}

void print_notes(const std::vector<BenchRow>& rows, const Benchmark& benchmark) {
  std::string last;
  for (const BenchRow& row : rows) {
    if (!row.note.empty() && row.note != last) fmt::print("note: {}\n", row.note);
    last = row.note;
  }
  if (!benchmark.cublas_note().empty()) fmt::print("note: no cuBLAS ceiling: {}\n", benchmark.cublas_note());
  if (!benchmark.standard_note().empty()) fmt::print("note: no standard attention: {}\n", benchmark.standard_note());
}

std::string choose_backend(BenchOptions& options) {
  if (options.backend == Backend::automatic) {
    const Status status = available(Backend::sm90);
    options.backend = status.ok() ? Backend::sm90 : Backend::cpu;
    return status.ok() ? "" : fmt::format("; not sm90: {}", text(status));
  }
  if (options.backend == Backend::emulator) throw UsageError("the emulator has no speed to measure");
  require(available(options.backend), fmt::format("the backend {} can't run here", name(options.backend)));
  return "";
}

void bench(BenchOptions options) {
  if (!options.fp8.empty() && (options.backward || options.ablation || !options.plot_path.empty())) {
    throw UsageError("--fp8 goes with none of --backward, --ablation and --plot");
  }
  if (!options.plot_path.empty()) require_plot(options.plot_path);
  if (!options.json_path.empty()) require_writable(options.json_path);
  const std::string note = choose_backend(options);
  const auto cases = cases_of(grid_of(options));
  if (options.ablation) check_ablation(options);
  auto memory = memory_for(options.backend);
  fmt::print("{} on {}{}\n", name(options.backend), memory->device_name(), note);
  std::fflush(stdout);
  const int samples = options.samples != 0               ? options.samples
                      : options.quick                    ? 5
                      : options.backend == Backend::sm90 ? 20
                                                         : 7;
  if (options.quantiser) return run_quantiser(options, *memory, samples);
  if (!options.fp8.empty()) return run_fp8(options, cases, *memory, samples);
  Benchmark benchmark(*memory, options.backend, options.threads, samples, cases);
  const auto rows = options.ablation ? run_ablation(benchmark, cases.at(0)) : run_grid(benchmark, cases);
  if (!options.ablation) {
    print_table(rows);
    print_notes(rows, benchmark);
  }
  if (!options.json_path.empty()) write_file(options.json_path, results_json(rows, *memory).dump(2) + "\n");
  if (!options.plot_path.empty()) plot(rows, "Tandem on " + memory->device_name(), options.plot_path);
  for (const BenchRow& row : rows) {
    if (!row.tandem) throw Failure("not every case could be measured");
  }
}

constexpr const char* examples =
    "The paper's grid: 16,384 tokens, hidden size 2,048, head dims 64, 128 and 256, 512 to 16k, full and causal; on a\n"
    "CPU smaller. FLOP: 4 * seqlen^2 * head_dim * heads * batch, half when causal, 2.5 times backward.\n"
    "Examples:\n"
    "  tandem bench --json results.json --plot results.svg\n"
    "  tandem bench --quick --head-dims 128\n"
    "  tandem bench --backend cpu --threads 2 --seqlens 2048 --tokens 2048 --hidden 512 --head-dims 64\n"
    "  tandem bench --fp8 fp8 --json fp8.json\n"
    "  tandem bench --ablation";

}  // namespace

void add_bench(CLI::App& program) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* command = program.add_subcommand("bench", "Measure speed over the paper's grid");
  add_backend_option(*command, o->backend);
  command->add_option("--head-dims", o->head_dims, "Head dims")->type_name("LIST");
  command->add_option("--seqlens", o->lengths, "Sequence lengths")->type_name("LIST");
  command->add_option("--mask", o->mask, "full, causal or both")->check(CLI::IsMember({"full", "causal", "both"}));
  command->add_option("--dtype", o->dtype, "fp32, fp16 or bf16")->check(CLI::IsMember({"fp32", "fp16", "bf16"}));
  command->add_option("--tokens", o->tokens, "Tokens: batch is this over seqlen")->check(CLI::Range(1, 1 << 30));
  command->add_option("--hidden", o->hidden, "Hidden size: heads are this over head dim")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--samples", o->samples, "Samples a case")->check(CLI::Range(1, 10000));
  command->add_option("--threads", o->threads, "CPU threads; otherwise all")->check(CLI::Range(1, 1 << 16));
  command->add_flag("--backward", o->backward, "Measure the backward pass");
  command->add_flag("--quantiser", o->quantiser, "Measure the quantiser's methods, against a copy by the device");
  add_fp8_option(*command, o->fp8, "Measure 8-bit attention");
  command->add_flag("--plain-value", o->plain_value, "With --fp8: value in rows, transposed by the kernel");
  command->add_flag("--quick", o->quick, "Fewer cases and samples");
  command->add_flag("--ablation", o->ablation, "The paper's ablation: d128, full, 16k, one idea left out at a time");
  command->add_option("--json", o->json_path, "Write the results")->type_name("FILE");
  command->add_option("--plot", o->plot_path, "Draw the results (needs gnuplot)")->type_name("FILE.png|.svg");
  command->footer(examples);
  command->callback([o] { bench(*o); });
}

}  // namespace tandem::tools
