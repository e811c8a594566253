// A progress line on stderr: drawn over itself on a terminal, silent elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace tandem::tools {

class Progress {
 public:
  explicit Progress(size_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// One step more is about to begin: `what` is shown.
  void step(const std::string& what);
  /// Clears the line, so that other output can follow.
  void clear();

 private:
  void draw(const std::string& what);

  size_t total_, done_ = 0;
  bool terminal_;
  std::chrono::steady_clock::time_point begin_, drawn_;
};

/// The line itself, `columns` wide at most: "[#####.....]  12/34  0:05  what".
std::string progress_line(size_t done, size_t total, double seconds, const std::string& what, size_t columns);

}  // namespace tandem::tools
