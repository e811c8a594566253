// The commands of the program. Each adds itself to the command line and runs from CLI11's callback; what goes wrong is
// thrown as Failure or UsageError.
#pragma once

#include <CLI/CLI.hpp>

#include "tandem/tandem.hpp"

namespace tandem::tools {

void add_info(CLI::App& program);
void add_run(CLI::App& program);
void add_verify(CLI::App& program);
void add_bench(CLI::App& program);
void add_accuracy(CLI::App& program);
void add_quantize(CLI::App& program);
void add_trace(CLI::App& program);

/// "--backend": auto, cpu, sm90 or emulator.
CLI::Option* add_backend_option(CLI::App& command, Backend& backend);
/// "--fp8": a method of 8-bit attention, by the names of `tandem accuracy`.
CLI::Option* add_fp8_option(CLI::App& command, std::string& method, const std::string& description);

}  // namespace tandem::tools
