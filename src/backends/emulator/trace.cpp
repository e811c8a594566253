// Chrome's trace event format: "X" events with a begin and a duration, and names of tracks.
#include "backends/emulator/trace.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace tandem::internal::emulator {

void Trace::add(const tandem::emulator::TraceEvent& event) {
  if (std::string_view(event.kind) == "role")
    roles_[event.track] = event.detail;
  else if (spans_.size() < most_events)
    spans_.push_back({event.track, event.kind, event.detail, event.begin, event.end});
}

namespace {

const char* separator_of(const std::string& kind, const std::string& detail) {
  return detail.empty() ? "" : kind.starts_with("wgmma") ? ", " : " ";
}

}  // namespace

std::string Trace::kind_of(const Span& span) const {
  if (!forward_) return span.kind;
  return span.kind == "wgmma SS" ? "S = Q K^T (SS)" : span.kind == "wgmma RS" ? "O += P V (RS)" : span.kind;
}

std::string Trace::name_of(const std::string& track) const {
  const auto role = roles_.find(track);
  if (role == roles_.end()) return track;
  const auto earlier = std::count_if(roles_.begin(), role, [&](const auto& r) { return r.second == role->second; });
  const auto all = std::count_if(roles_.begin(), roles_.end(), [&](const auto& r) { return r.second == role->second; });
  return all == 1 ? role->second : role->second + ' ' + std::to_string(earlier);
}

std::string Trace::text() const {
  std::vector<std::string> tracks;
  for (const Span& span : spans_)
    if (std::find(tracks.begin(), tracks.end(), span.track) == tracks.end()) tracks.push_back(span.track);
  const auto place = [](const std::string& track) { return std::make_pair(track.rfind("warpgroup", 0) != 0, track); };
  std::sort(tracks.begin(), tracks.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  std::ostringstream out;
  out << std::fixed << std::setprecision(3) << "{\"traceEvents\": [\n";
  const char* separator = "";
  for (size_t i = 0; i < tracks.size(); ++i) {
    out << separator << R"({"ph": "M", "name": "thread_name", "pid": 0, "tid": )" << i << R"(, "args": {"name": ")"
        << name_of(tracks[i]) << "\"}}";
    separator = ",\n";
  }
  for (const Span& span : spans_) {
    const auto track = std::find(tracks.begin(), tracks.end(), span.track) - tracks.begin();
    const std::string kind = kind_of(span), detail = name_of(span.detail);
    out << separator << R"({"ph": "X", "pid": 0, "tid": )" << track << R"(, "cat": ")" << kind << R"(", "name": ")"
        << kind << separator_of(span.kind, detail) << detail << R"(", "ts": )" << span.begin / 1000 << R"(, "dur": )"
        << (span.end - span.begin) / 1000 << "}";
    separator = ",\n";
  }
  out << "\n]}\n";
  return out.str();
}

}  // namespace tandem::internal::emulator
