// The emulated library's one exported symbol, and its table of kernels.
#include <chrono>
#include <vector>

#include "backends/emulator/scheduler.hpp"

namespace tandem::emulator {

namespace {

std::vector<Kernel>& kernels() {
  static std::vector<Kernel> table;
  return table;
}

LaunchResult launch(const Kernel& kernel, int grid, int threads, size_t shared_bytes, const void* parameters,
                    const LaunchOptions& options) {
  constexpr size_t most_shared_bytes = 232448;  // 227 KiB, CUDA C++ Programming Guide, "Technical Specifications"
  const auto begin = std::chrono::steady_clock::now();
  Run run(kernel, grid, threads, shared_bytes, parameters, options);
  if (grid < 1 || threads < 1 || threads % warp_lanes || threads > max_threads || threads > kernel.threads)
    run.findings.add(
        "bad launch", 0, 0,
        format("%s: %d blocks of %d threads; the kernel allows %d", kernel.name, grid, threads, kernel.threads));
  if (shared_bytes > most_shared_bytes)
    run.findings.add("bad launch", 0, 0,
                     format("%zu bytes of shared memory; %zu is all", shared_bytes, most_shared_bytes));
  if (!run.findings.size()) run.execute();
  if (options.report)
    for (const std::string& text : run.findings.describe()) options.report(options.context, text.c_str());
  return {run.findings.size(), run.switches,
          run.accesses,        run.wgmmas,
          run.copies,          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
          run.cycles};
}

}  // namespace

Registration::Registration(const Kernel& kernel) { kernels().push_back(kernel); }

}  // namespace tandem::emulator

extern "C" __attribute__((visibility("default"))) const tandem::emulator::Interface* tandem_emulator_interface() {
  using namespace tandem::emulator;
  static const Interface table = {
      Interface::current_version,
      [] { return kernels().size(); },
      [](size_t index) -> const Kernel& { return kernels()[index]; },
      &encode,
      &launch,
  };
  return &table;
}
