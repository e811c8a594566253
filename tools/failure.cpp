// Status values as text and as exceptions.
#include "tools/failure.hpp"

#include <fmt/format.h>

#include <cstring>

namespace tandem::tools {

std::string text(const Status& status) {
  // Most messages name their argument themselves.
  if (std::strstr(status.message, status.argument) != nullptr) {
    return fmt::format("{} ({})", status.message, name(status.code));
  }
  return fmt::format("{}: {} ({})", status.argument, status.message, name(status.code));
}

void require(const Status& status, const std::string& doing) {
  if (!status.ok()) throw Failure(fmt::format("{}: {}", doing, text(status)));
}

}  // namespace tandem::tools
