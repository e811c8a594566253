// Writes the timeline of an emulated launch as a Chrome trace (chrome://tracing, Perfetto).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backends/emulator/interface.hpp"

namespace tandem::internal::emulator {

class Trace {
 public:
  /// The forward kernels' products are told apart by where A lies: S = Q K^T takes both operands from shared memory
  /// (SS), O += P V has P in registers (RS).
  explicit Trace(std::string_view kernel) : forward_(kernel.starts_with("forward")) {}

  void add(const tandem::emulator::TraceEvent& event);
  /// One event object a span; a microsecond of the trace is a thousand cycles.
  std::string text() const;

 private:
  static constexpr size_t most_events = 200000;
  struct Span {
    std::string track, kind, detail;
    double begin, end;
  };
  std::string kind_of(const Span& span) const;
  /// "producer" and "consumer 0" where warpgroups have said what they are, else the track itself.
  std::string name_of(const std::string& track) const;

  bool forward_;
  std::vector<Span> spans_;
  std::map<std::string, std::string> roles_;  // of tracks
};

}  // namespace tandem::internal::emulator
