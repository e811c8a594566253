// Opens libtandem_emulator.so and the run-time settings of the emulator.
#pragma once

#include <string>

#include "backends/emulator/interface.hpp"

namespace tandem::internal::emulator {

using tandem::emulator::Interface;
using tandem::emulator::Kernel;
using tandem::emulator::LaunchOptions;

/// The emulated kernels; opened once. Looked for in TANDEM_EMULATOR_LIBRARY (a file), else beside the library or
/// program that holds this code, and in ../lib from there. The Status says where it was looked for.
Result<const Interface*> load() noexcept;

/// Null if the library holds no kernel of that name.
const Kernel* find_kernel(const Interface& interface, const char* name) noexcept;

/// Settings that a plan doesn't hold, from the environment (docs/emulator.md): TANDEM_EMULATOR_OPTIONS, a list such as
/// "delay=200,preempt=7,sms=3"; TANDEM_EMULATOR_REPORT and TANDEM_EMULATOR_TRACE, files to write.
struct Settings {
  int delay = 64, preempt = 0, sms = 2, host_threads = 1;
  bool races = true;
  std::string report_file, trace_file;
};
Result<Settings> settings() noexcept;

}  // namespace tandem::internal::emulator
