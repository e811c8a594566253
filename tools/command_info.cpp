// tandem info: what this build has, and what of it can run here.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "tools/commands.hpp"
#include "tools/cuda_memory.hpp"
#include "tools/failure.hpp"

namespace tandem::tools {
namespace {

using nlohmann::json;
constexpr Backend backends[] = {Backend::cpu, Backend::sm90, Backend::emulator};

json backends_json() {
  json list = json::array();
  for (const Backend backend : backends) {
    const Status status = available(backend);
    list.push_back({{"name", name(backend)}, {"available", status.ok()}, {"reason", status.message}});
  }
  return list;
}

json devices_json() {
  json list = json::array();
  list.push_back({{"kind", "cpu"}, {"threads", std::thread::hardware_concurrency()}});
  const CudaInfo info = cuda_info();
  for (const auto& device : info.devices) {
    list.push_back({{"kind", "cuda"},
                    {"index", device.index},
                    {"name", device.name},
                    {"compute_capability", fmt::format("{}.{}", device.major, device.minor)},
                    {"multiprocessors", device.multiprocessors},
                    {"memory_bytes", device.memory_bytes},
                    {"driver", fmt::format("{}.{}", info.driver_version / 1000, info.driver_version % 1000 / 10)}});
  }
  return list;
}

json kernels_json() {
  json list = json::array();
  for (size_t i = 0; i < kernel_count(); ++i) {
    const KernelInfo& kernel = kernel_info(i);
    list.push_back({{"name", kernel.name},
                    {"pass", kernel.pass},
                    {"dtype", kernel.dtype},
                    {"head_dim", kernel.head_dim},
                    {"value_dim", kernel.value_dim},
                    {"tile_query", kernel.tile_query},
                    {"tile_key", kernel.tile_key},
                    {"threads", kernel.threads},
                    {"registers", kernel.registers},
                    {"shared_bytes", kernel.shared_bytes},
                    {"local_bytes", kernel.local_bytes}});
  }
  return list;
}

/// "64/64", or a dash for a kernel that has no such thing.
std::string pair(const char* separator, int a, int b) { return a == 0 ? "-" : fmt::format("{}{}{}", a, separator, b); }

void print_text() {
  fmt::print("tandem {}\n\nBackends\n", version());
  for (const Backend backend : backends) {
    const Status status = available(backend);
    fmt::print("  {:<10}{}\n", name(backend), status.ok() ? "ready" : text(status));
  }
  const CudaInfo info = cuda_info();
  fmt::print("\nDevices\n  cpu       {} threads\n", std::thread::hardware_concurrency());
  for (const auto& device : info.devices) {
    fmt::print("  cuda:{:<5}{}, compute capability {}.{}, {} multiprocessors, {:.0f} GiB, driver {}.{}\n", device.index,
               device.name, device.major, device.minor, device.multiprocessors,
               static_cast<double>(device.memory_bytes) / (1 << 30), info.driver_version / 1000,
               info.driver_version % 1000 / 10);
  }
  if (!info.problem.empty()) fmt::print("  cuda      none: {}\n", info.problem);
  fmt::print("\nCompiled GPU kernels: {}\n", kernel_count());
  if (kernel_count() == 0) return;
  fmt::print("  {:<36}{:<10}{:<6}{:>8}{:>10}{:>9}{:>10}{:>9}{:>7}\n", "name", "pass", "dtype", "dims", "tile",
             "threads", "registers", "shared", "local");
  for (size_t i = 0; i < kernel_count(); ++i) {
    const KernelInfo& k = kernel_info(i);
    fmt::print("  {:<36}{:<10}{:<6}{:>8}{:>10}{:>9}{:>10}{:>9}{:>7}\n", k.name, k.pass, k.dtype,
               pair("/", k.head_dim, k.value_dim), pair("x", k.tile_query, k.tile_key), k.threads, k.registers,
               k.shared_bytes, k.local_bytes);
  }
}

}  // namespace

void add_info(CLI::App& program) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* command = program.add_subcommand("info", "Show devices, backends and compiled kernels");
  command->add_flag("--json", *as_json, "Print JSON");
  command->footer("Example:\n  tandem info --json");
  command->callback([as_json] {
    if (!*as_json) return print_text();
    const json all = {{"version", version()},
                      {"backends", backends_json()},
                      {"devices", devices_json()},
                      {"kernels", kernels_json()}};
    fmt::print("{}\n", all.dump(2));
  });
}

}  // namespace tandem::tools
