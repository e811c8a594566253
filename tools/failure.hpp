// The two ways in which a command ends badly. The library returns Status values; the program around it throws, and main
// turns what it catches into one line on stderr and an exit code.
#pragma once

#include <stdexcept>
#include <string>

#include "tandem/tandem.hpp"

namespace tandem::tools {

/// The work failed: a file can't be read, a plan was refused, a result is wrong. Exit code 1.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The command line makes no sense. Exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// "query: head_dim must be ... (invalid_argument)"
std::string text(const Status& status);

/// Throws Failure unless `status` is ok; `doing` says what failed ("planning").
void require(const Status& status, const std::string& doing);

}  // namespace tandem::tools
