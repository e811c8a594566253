// Making Status values: printf-like, of fixed size, without allocation.
#pragma once

#include <cstdarg>
#include <cstdio>

#include "tandem/tandem.hpp"

namespace tandem::internal {

[[gnu::format(printf, 3, 4)]] inline Status error(Code code, const char* argument, const char* format, ...) noexcept {
  Status status;
  status.code = code;
  std::snprintf(status.argument, sizeof status.argument, "%s", argument);
  va_list list;
  va_start(list, format);
  std::vsnprintf(status.message, sizeof status.message, format, list);
  va_end(list);
  return status;
}

}  // namespace tandem::internal
