// Chrome's trace event format: "X" events with a begin and a duration, and names of tracks.
#include "backends/emulator/trace.hpp"

#include <algorithm>
#include <cstdio>

namespace tandem::internal::emulator {

void Trace::add(const tandem::emulator::TraceEvent& event) {
  if (spans_.size() < most_events) spans_.push_back({event.track, event.kind, event.detail, event.begin, event.end});
}

bool Trace::write(const std::string& file) const {
  std::FILE* out = std::fopen(file.c_str(), "w");
  if (out == nullptr) return false;
  std::vector<std::string> tracks;
  for (const Span& span : spans_)
    if (std::find(tracks.begin(), tracks.end(), span.track) == tracks.end()) tracks.push_back(span.track);
  std::sort(tracks.begin(), tracks.end());
  bool good = std::fprintf(out, "{\"traceEvents\": [\n") > 0;
  const char* separator = "";
  for (size_t i = 0; i < tracks.size(); ++i) {
    good = good && std::fprintf(out,
                                "%s{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 0, \"tid\": %zu, "
                                "\"args\": {\"name\": \"%s\"}}",
                                separator, i, tracks[i].c_str()) > 0;
    separator = ",\n";
  }
  for (const Span& span : spans_) {
    const auto track = std::find(tracks.begin(), tracks.end(), span.track) - tracks.begin();
    good = good && std::fprintf(out,
                                "%s{\"ph\": \"X\", \"pid\": 0, \"tid\": %td, \"cat\": \"%s\", \"name\": \"%s %s\", "
                                "\"ts\": %.3f, \"dur\": %.3f}",
                                separator, track, span.kind.c_str(), span.kind.c_str(), span.detail.c_str(),
                                span.begin / 1000, (span.end - span.begin) / 1000) > 0;
    separator = ",\n";
  }
  good = good && std::fprintf(out, "\n]}\n") > 0;
  return std::fclose(out) == 0 && good;
}

}  // namespace tandem::internal::emulator
