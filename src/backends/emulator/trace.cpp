// Chrome's trace event format: "X" events with a begin and a duration, and names of tracks.
#include "backends/emulator/trace.hpp"

#include <algorithm>
#include <fstream>
#include <iomanip>

namespace tandem::internal::emulator {

void Trace::add(const tandem::emulator::TraceEvent& event) {
  if (spans_.size() < most_events) spans_.push_back({event.track, event.kind, event.detail, event.begin, event.end});
}

bool Trace::write(const std::string& file) const {
  std::ofstream out(file);
  std::vector<std::string> tracks;
  for (const Span& span : spans_)
    if (std::find(tracks.begin(), tracks.end(), span.track) == tracks.end()) tracks.push_back(span.track);
  std::sort(tracks.begin(), tracks.end());
  out << std::fixed << std::setprecision(3) << "{\"traceEvents\": [\n";
  const char* separator = "";
  for (size_t i = 0; i < tracks.size(); ++i) {
    out << separator << R"({"ph": "M", "name": "thread_name", "pid": 0, "tid": )" << i << R"(, "args": {"name": ")"
        << tracks[i] << "\"}}";
    separator = ",\n";
  }
  for (const Span& span : spans_) {
    const auto track = std::find(tracks.begin(), tracks.end(), span.track) - tracks.begin();
    out << separator << R"({"ph": "X", "pid": 0, "tid": )" << track << R"(, "cat": ")" << span.kind << R"(", "name": ")"
        << span.kind << ' ' << span.detail << R"(", "ts": )" << span.begin / 1000 << R"(, "dur": )"
        << (span.end - span.begin) / 1000 << "}";
    separator = ",\n";
  }
  out << "\n]}\n";
  out.close();
  return out.good();
}

}  // namespace tandem::internal::emulator
