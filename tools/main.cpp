// tandem: the command line program. Exit codes: 0 done, 1 the work failed, 2 the command line makes no sense.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "tools/accuracy/measure.hpp"
#include "tools/commands.hpp"
#include "tools/failure.hpp"

namespace tandem::tools {

CLI::Option* add_backend_option(CLI::App& command, Backend& backend) {
  static const std::map<std::string, Backend> names = {
      {"auto", Backend::automatic}, {"cpu", Backend::cpu}, {"sm90", Backend::sm90}, {"emulator", Backend::emulator}};
  const auto convert = [&backend](const std::vector<std::string>& values) {
    backend = names.at(values[0]);
    return true;
  };
  return command
      .add_option("--backend", convert, "auto (a Hopper GPU where there is one, else the CPU), cpu, sm90 or emulator")
      ->check(CLI::IsMember(&names))
      ->type_name("NAME");
}

CLI::Option* add_fp8_option(CLI::App& command, std::string& method, const std::string& description) {
  std::vector<std::string> names;
  for (const Method& known : methods()) {
    if (known.how) names.push_back(known.name);
  }
  return command.add_option("--fp8", method, fmt::format("{}: {}", description, fmt::join(names, ", ")))
      ->type_name("METHOD")
      ->check(CLI::IsMember(names));
}

namespace {

constexpr const char* footer =
    "Examples:\n"
    "  tandem run --input examples/data/smollm2_layer18.safetensors --causal --check\n"
    "  tandem run --query Q.npy --key K.npy --value V.npy --output O.npy --lse L.npy\n"
    "  tandem verify --quick\n"
    "  tandem bench --quick --json bench.json --plot bench.png\n"
    "'tandem COMMAND --help' says more.";

int report(const char* message, int code) {
  std::fflush(stdout);
  fmt::print(stderr, "tandem: {}\n", message);
  return code;
}

/// CLI11 alone would ask for a command where one is misspelt.
void check_command(const CLI::App& program, const char* word) {
  std::string names;
  for (const CLI::App* command : program.get_subcommands({})) {
    if (command->get_name() == word) return;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  if (word[0] != '-') throw UsageError(fmt::format("'{}' is no command; there are {}", word, names));
}

int run(int argc, char** argv) {
  CLI::App program("Exact attention for Hopper GPUs and for any CPU.", "tandem");
  program.set_version_flag("--version", fmt::format("tandem {}", version()));
  program.require_subcommand(1);
  program.footer(footer);
  add_info(program);
  add_run(program);
  add_verify(program);
  add_bench(program);
  add_quantize(program);
  add_accuracy(program);
  add_trace(program);
  try {
    if (argc > 1) check_command(program, argv[1]);
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  } catch (const UsageError& error) {
    return report(error.what(), 2);
  } catch (const Failure& error) {
    return report(error.what(), 1);
  } catch (const std::bad_alloc&) {
    return report("there isn't enough memory for that", 1);
  } catch (const std::exception& error) {
    return report(fmt::format("an unexpected fault, please report it: {}", error.what()).c_str(), 1);
  }
  return 0;
}

}  // namespace
}  // namespace tandem::tools

int main(int argc, char** argv) { return tandem::tools::run(argc, argv); }
