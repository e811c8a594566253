// What -fsanitize=undefined calls where a kernel's arithmetic is undefined, defined here instead of by the sanitizer's
// library. The host's result may look right where nvcc, which assumes that this never happens, computes something else.
#include "backends/emulator/scheduler.hpp"

namespace tandem::emulator {

namespace {

/// The first argument of every handler begins with the place in the source.
struct SourceLocation {
  const char* file;
  uint32_t line, column;
};

void report_undefined(const void* data, const char* what, bool fatal, uintptr_t place) {
  if (current == nullptr) return;
  const auto& location = *static_cast<const SourceLocation*>(data);
  std::string file = location.file != nullptr ? location.file : "?";
  file = file.substr(file.rfind('/') + 1);
  current->block.report("undefined arithmetic", place, 0, "%s at %s:%u:%u", what, file.c_str(), location.line,
                        location.column);
  if (fatal) scheduler().stop();
}

}  // namespace

}  // namespace tandem::emulator

#define TANDEM_UNDEFINED(name, what, fatal, ...)                         \
  void __ubsan_handle_##name(const void* data, __VA_ARGS__) {            \
    tandem::emulator::report_undefined(data, what, fatal, TANDEM_PLACE); \
  }

// NOLINTBEGIN(bugprone-reserved-identifier): the names are the compiler's.
extern "C" {
TANDEM_UNDEFINED(add_overflow, "a sum overflows", false, uintptr_t, uintptr_t)
TANDEM_UNDEFINED(sub_overflow, "a difference overflows", false, uintptr_t, uintptr_t)
TANDEM_UNDEFINED(mul_overflow, "a product overflows", false, uintptr_t, uintptr_t)
TANDEM_UNDEFINED(negate_overflow, "a negation overflows", false, uintptr_t)
TANDEM_UNDEFINED(divrem_overflow, "a division by zero, or one that overflows", true, uintptr_t, uintptr_t)
TANDEM_UNDEFINED(shift_out_of_bounds, "a shift by too many bits", false, uintptr_t, uintptr_t)
TANDEM_UNDEFINED(out_of_bounds, "an array's index is out of bounds", true, uintptr_t)
}
// NOLINTEND(bugprone-reserved-identifier)
