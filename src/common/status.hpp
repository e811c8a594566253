// Making Status values: printf-like, of fixed size, without allocation.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>

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

/// Calls `function`, which returns a Status or a Result, and turns what it throws into a Status: the border that no
/// exception crosses.
template <class Function>
auto guarded(Function&& function) noexcept -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, "", "the host has no memory left for this call");
  } catch (const std::exception& exception) {
    return error(Code::internal, "", "unexpected exception: %s", exception.what());
  } catch (...) {
    return error(Code::internal, "", "unexpected exception of unknown type");
  }
}

}  // namespace tandem::internal
