// Finding and opening the emulated library.
#include "backends/emulator/loader.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include "common/status.hpp"

namespace tandem::internal::emulator {

namespace {

constexpr const char* file_name = "libtandem_emulator.so";

std::vector<std::string> candidates() {
  if (const char* file = std::getenv("TANDEM_EMULATOR_LIBRARY"); file != nullptr && *file) return {file};
  std::vector<std::string> paths;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&load), &info) != 0 && info.dli_fname != nullptr) {
    const std::string_view self = info.dli_fname;
    const size_t slash = self.rfind('/');
    const std::string folder(slash == std::string_view::npos ? "." : self.substr(0, slash));
    for (const char* below : {"/", "/../lib/", "/../src/"}) paths.push_back(folder + below + file_name);
  }
  paths.emplace_back(file_name);
  return paths;
}

Result<const Interface*> open() {
  std::string tried;
  for (const std::string& path : candidates()) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      tried += (tried.empty() ? "" : "; ") + std::string(dlerror());
      continue;
    }
    const auto function =
        reinterpret_cast<tandem::emulator::InterfaceFunction>(dlsym(library, tandem::emulator::interface_symbol));
    const Interface* interface = function != nullptr ? function() : nullptr;
    if (interface == nullptr || interface->version != Interface::current_version)
      return error(Code::no_device, "options.backend", "%s is not of this version of Tandem", path.c_str());
    return interface;
  }
  return error(Code::no_device, "options.backend",
               "the emulated kernels can't be opened; TANDEM_EMULATOR_LIBRARY may name the file (%s)", tried.c_str());
}

}  // namespace

Result<const Interface*> load() noexcept {
  return guarded([]() -> Result<const Interface*> {
    static std::mutex mutex;
    static const Interface* interface = nullptr;
    const std::lock_guard lock(mutex);
    if (interface != nullptr) return interface;
    Result<const Interface*> opened = open();
    if (opened.ok()) interface = *opened;
    return opened;
  });
}

const Kernel* find_kernel(const Interface& interface, const char* name) noexcept {
  for (size_t i = 0; i < interface.kernel_count(); ++i)
    if (std::strcmp(interface.kernel(i).name, name) == 0) return &interface.kernel(i);
  return nullptr;
}

Result<Settings> settings() noexcept {
  return guarded([]() -> Result<Settings> {
    Settings settings;
    const auto text = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value != nullptr ? value : "");
    };
    settings.report_file = text("TANDEM_EMULATOR_REPORT");
    settings.trace_file = text("TANDEM_EMULATOR_TRACE");
    std::string options = text("TANDEM_EMULATOR_OPTIONS");
    while (!options.empty()) {
      const size_t comma = options.find(',');
      const std::string option = options.substr(0, comma);
      options = comma == std::string::npos ? "" : options.substr(comma + 1);
      const size_t equals = option.find('=');
      const std::string key = option.substr(0, equals);
      char* end = nullptr;
      const long value = equals == std::string::npos ? -1 : std::strtol(option.c_str() + equals + 1, &end, 10);
      const bool good = value >= 0 && value <= 1000000 && end != nullptr && *end == 0;
      int* const target = key == "delay"          ? &settings.delay
                          : key == "preempt"      ? &settings.preempt
                          : key == "sms"          ? &settings.sms
                          : key == "host_threads" ? &settings.host_threads
                                                  : nullptr;
      if (good && target != nullptr) {
        *target = static_cast<int>(value);
      } else if (good && key == "races") {
        settings.races = value != 0;
      } else {
        return error(Code::invalid_argument, "TANDEM_EMULATOR_OPTIONS",
                     "\"%s\" is not one of delay=N, preempt=N, sms=N, host_threads=N, races=0|1", option.c_str());
      }
    }
    if (settings.sms < 1) settings.sms = 1;
    return settings;
  });
}

}  // namespace tandem::internal::emulator
