// Running of sweep cases.
#include <fmt/format.h>

#include "tools/failure.hpp"
#include "tools/judge.hpp"
#include "tools/sweep.hpp"

namespace tandem::tools {
namespace {

constexpr double affordable_operations = 6e7;  // of the oracle, a case: about a tenth of a second

Outcome failed(const std::string& text) { return {Outcome::Kind::failed, text}; }

/// Plans and runs one pass; an outcome other than passed ends the case.
Outcome run_pass(Job& job, Pass pass, Backend backend, Memory& memory, bool repeat) {
  job.pass = pass;
  Problem problem = problem_of(job, memory.device());
  problem.options.backend = backend;
  auto planned = plan(pass, problem);
  if (!planned.ok()) {
    const bool refused = planned.status().code == Code::unsupported;
    return {refused ? Outcome::Kind::skipped : Outcome::Kind::failed, text(planned.status())};
  }
  if (planned->backend() != backend)
    return failed(fmt::format("{} ran instead of {}", name(planned->backend()), name(backend)));
  Execution execution(job, *planned, memory);
  if (const Status status = execution.run(); !status.ok()) return failed(text(status));
  execution.fetch(job);
  if (!repeat) return {};
  const Job first = job;
  if (const Status status = execution.run(); !status.ok()) return failed("second run: " + text(status));
  execution.fetch(job);
  for (const Role& role : roles()) {
    if (role.written(pass) && (job.*role.tensor).bytes != (first.*role.tensor).bytes) {
      return failed(fmt::format("{} differs between two runs of the same plan", role.name));
    }
  }
  return {};
}

Outcome check_guards(const Job& job) {
  for (const Role& role : roles()) {
    const Tensor& tensor = job.*role.tensor;
    if (tensor.present() && role.written(job.pass) && !guards_intact(tensor)) {
      return failed(fmt::format("memory outside {} was written to", role.name));
    }
  }
  return {};
}

/// The 8-bit job of a case, quantised for the plan that the backend makes of it.
Outcome quantise_case(const SweepCase& c, Memory& memory, Job& job) {
  const Job source = job;
  job = quantised_job(source, *c.quantising, c.layout);
  const auto planned = plan(Pass::forward, problem_of(job, memory.device()));
  if (!planned.ok()) {
    const bool refused = planned.status().code == Code::unsupported;
    return {refused ? Outcome::Kind::skipped : Outcome::Kind::failed, text(planned.status())};
  }
  allocate_scales(source, planned->quantization(), job, c.layout);
  quantise_on_host(source, job);
  return {};
}

}  // namespace

Outcome run_case(const SweepCase& c, Backend backend, Memory& memory) {
  Job job = make_job(c);
  job.problem.options.backend = backend;
  job.problem.options.emulator_seed = c.seed;
  job.problem.options.threads = 0;
  // The emulator takes a second of its own to be slow in; there the seeds are what varies.
  const bool repeat = backend != Backend::emulator && c.pass == Pass::forward;
  if (c.quantising) {
    if (Outcome outcome = quantise_case(c, memory, job); outcome.kind != Outcome::Kind::passed) return outcome;
  }
  Outcome outcome = run_pass(job, Pass::forward, backend, memory, repeat);
  if (outcome.kind != Outcome::Kind::passed) return outcome;
  if (outcome = check_guards(job); outcome.kind != Outcome::Kind::passed) return outcome;
  if (c.pass == Pass::backward) {
    outcome = run_pass(job, Pass::backward, backend, memory, false);
    if (outcome.kind != Outcome::Kind::passed) return outcome;
    if (outcome = check_guards(job); outcome.kind != Outcome::Kind::passed) return outcome;
  }
  const auto verdict = judge(job, affordable_rows(job, affordable_operations), c.seed);
  if (!verdict.ok) return failed(verdict.text);
  return {Outcome::Kind::passed, verdict.text};
}

}  // namespace tandem::tools
