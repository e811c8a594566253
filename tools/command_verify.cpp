// tandem verify: the sweep against the oracle.
#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "tools/commands.hpp"
#include "tools/failure.hpp"
#include "tools/progress.hpp"
#include "tools/sweep.hpp"

namespace tandem::tools {
namespace {

struct VerifyOptions {
  SweepOptions sweep;
  int64_t only = -1;
};

struct Counts {
  size_t passed = 0, failed = 0;
  std::map<std::string, size_t> skipped;  // by reason
};

void run_all(const std::vector<SweepCase>& cases, Backend backend, Memory& memory, Counts& counts) {
  Progress progress(cases.size());
  for (const SweepCase& c : cases) {
    progress.step(c.name());
    const Outcome outcome = run_case(c, backend, memory);
    switch (outcome.kind) {
      case Outcome::Kind::passed:
        ++counts.passed;
        break;
      case Outcome::Kind::skipped:
        ++counts.skipped[outcome.text];
        break;
      case Outcome::Kind::failed:
        ++counts.failed;
        progress.clear();
        fmt::print("FAILED {}\n       {}\n", c.name(), outcome.text);
        std::fflush(stdout);
    }
  }
}

void verify(VerifyOptions options) {
  Backend& backend = options.sweep.backend;
  std::string note;
  if (backend == Backend::automatic) {
    const Status status = available(Backend::sm90);
    backend = status.ok() ? Backend::sm90 : Backend::cpu;
    note = status.ok() ? " (chosen by auto)" : fmt::format(" (chosen by auto, not sm90: {})", text(status));
  }
  require(available(backend), fmt::format("the backend {} can't run here", name(backend)));
  auto memory = memory_for(backend);
  auto cases = sweep_cases(options.sweep);
  if (options.only >= static_cast<int64_t>(cases.size())) {
    throw UsageError(fmt::format("--case: the sweep has cases 0 to {}", cases.size() - 1));
  }
  if (options.only >= 0) cases = {cases[static_cast<size_t>(options.only)]};
  fmt::print("{} sweep of {} cases on {}{}, seed {}\n",
             options.sweep.backward ? "backward" : (options.sweep.fp8 ? "8-bit forward" : "forward"), cases.size(),
             name(backend), note, options.sweep.seed);
  Counts counts;
  run_all(cases, backend, *memory, counts);
  size_t skipped = 0;
  for (const auto& [reason, count] : counts.skipped) {
    skipped += count;
    fmt::print("skipped {:>4}: {}\n", count, reason);
  }
  fmt::print("{} passed, {} failed, {} skipped\n", counts.passed, counts.failed, skipped);
  if (counts.failed != 0) throw Failure(fmt::format("{} of {} cases failed", counts.failed, cases.size()));
  if (counts.passed == 0) throw Failure("nothing was verified: every case was skipped");
}

}  // namespace

void add_verify(CLI::App& program) {
  auto options = std::make_shared<VerifyOptions>();
  options->sweep.backend = Backend::automatic;
  CLI::App* command = program.add_subcommand("verify", "Compare a backend with float64 attention over a seeded sweep");
  add_backend_option(*command, options->sweep.backend);
  CLI::Option* backward = command->add_flag("--backward", options->sweep.backward, "Verify gradients");
  command->add_flag("--fp8", options->sweep.fp8, "Verify the 8-bit forward, on tensors that the tool quantises")
      ->excludes(backward);
  command->add_option("--seed", options->sweep.seed, "Seed of the sweep");
  command->add_flag("--quick", options->sweep.quick, "Fewer cases");
  command->add_option("--count", options->sweep.count, "So many cases")->check(CLI::Range(1, 1'000'000));
  command->add_option("--case", options->only, "Only the case of this number")->check(CLI::NonNegativeNumber);
  command->footer(
      "Every case has random shapes, masks, layouts and lengths; outputs begin as NaN, guard words surround them, and\n"
      "NaN lies in all memory that must not be read. The exit code is 1 if any case fails.\n"
      "Examples:\n"
      "  tandem verify --quick\n"
      "  tandem verify --backend cpu --backward --seed 3\n"
      "  tandem verify --fp8 --quick\n"
      "  tandem verify --backend sm90 --case 17");
  command->callback([options] { verify(*options); });
}

}  // namespace tandem::tools
