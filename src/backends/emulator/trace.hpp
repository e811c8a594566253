// Writes the timeline of an emulated launch as a Chrome trace (chrome://tracing, Perfetto).
#pragma once

#include <string>
#include <vector>

#include "backends/emulator/interface.hpp"

namespace tandem::internal::emulator {

class Trace {
 public:
  void add(const tandem::emulator::TraceEvent& event);
  /// One event object a span; a microsecond of the trace is a thousand cycles. False if the file can't be written.
  bool write(const std::string& file) const;

 private:
  static constexpr size_t most_events = 200000;
  struct Span {
    std::string track, kind, detail;
    double begin, end;
  };
  std::vector<Span> spans_;
};

}  // namespace tandem::internal::emulator
