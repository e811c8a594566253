// Findings as text, with source lines from the debug information of the emulated library (libbacktrace, which comes
// with the compiler; without it, addresses).
#include "backends/emulator/report.hpp"

#if __has_include(<backtrace.h>)
#include <backtrace.h>
#define TANDEM_HAS_BACKTRACE 1
#endif

#include <cstdarg>
#include <cstdio>
#include <map>

namespace tandem::emulator {

std::string format(const char* text, ...) {
  char buffer[600];
  va_list list;
  va_start(list, text);
  std::vsnprintf(buffer, sizeof buffer, text, list);
  va_end(list);
  return buffer;
}

void Findings::add(const char* kind, uintptr_t place, uintptr_t other, const std::string& text) {
  const std::lock_guard lock(mutex_);
  for (Finding& finding : list_) {
    if (finding.place == place && std::string_view(finding.kind) == kind) {
      ++finding.count;
      return;
    }
  }
  list_.push_back({kind, text, place, other, 1});
}

int Findings::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(list_.size());
}

std::vector<std::string> Findings::describe() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> texts;
  for (const Finding& finding : list_) {
    std::string text = std::string(finding.kind) + ": " + finding.text;
    if (finding.count > 1) text += format(" (%d times)", finding.count);
    if (finding.place) text += "\n  at " + source_lines(finding.place);
    if (finding.other) text += "\n  other side " + source_lines(finding.other);
    texts.push_back(std::move(text));
  }
  return texts;
}

#if defined(TANDEM_HAS_BACKTRACE)
namespace {

int add_frame(void* text, uintptr_t, const char* file, int line, const char*) {
  if (!file) return 0;
  std::string name = file;
  name = name.substr(name.rfind('/') + 1);
  if (name == "ptx_host.hpp") return 0;
  std::string& lines = *static_cast<std::string*>(text);
  if (!lines.empty()) lines += " < ";
  lines += name + ":" + std::to_string(line);
  return 0;
}
void ignore_error(void*, const char*, int) {}

}  // namespace

std::string source_lines(uintptr_t return_address) {
  static std::mutex mutex;
  static std::map<uintptr_t, std::string> known;
  static backtrace_state* state = backtrace_create_state(nullptr, 1, ignore_error, nullptr);
  const std::lock_guard lock(mutex);
  std::string& lines = known[return_address];
  if (lines.empty() && state) backtrace_pcinfo(state, return_address - 1, add_frame, ignore_error, &lines);
  if (lines.empty()) lines = format("0x%zx", static_cast<size_t>(return_address));
  return lines;
}
#else
std::string source_lines(uintptr_t return_address) { return format("0x%zx", static_cast<size_t>(return_address)); }
#endif

}  // namespace tandem::emulator
