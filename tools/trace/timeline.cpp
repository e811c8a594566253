// Timelines: Chrome's trace format in, SVG out.
#include "tools/trace/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/failure.hpp"

namespace tandem::tools {
namespace {

using nlohmann::json;

constexpr double cycles_per_unit = 1000;  // the emulator writes a thousand cycles as a microsecond
constexpr double gutter = 130, width = 1160, margin = 20, header = 70, lane_height = 16, row_gap = 8;

// Distinct in hue and in lightness, so that they can be told apart in grey too (after Okabe and Ito 2008).
constexpr const char* colours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442"};

/// Waiting is the absence of work: it is pale.
std::string colour_of(const std::string& kind, const std::vector<std::string>& working_kinds) {
  if (kind.find("wait") != std::string::npos) return "#dddddd";
  const auto at = std::find(working_kinds.begin(), working_kinds.end(), kind) - working_kinds.begin();
  return colours[static_cast<size_t>(at) % std::size(colours)];
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

/// The lane of each span of a track: the first in which the one before has ended.
std::vector<size_t> lanes_of(const std::vector<const Span*>& spans) {
  std::vector<double> ends;
  std::vector<size_t> lanes;
  for (const Span* span : spans) {
    size_t lane = 0;
    while (lane < ends.size() && ends[lane] > span->begin + 1e-9) ++lane;
    if (lane == ends.size()) ends.push_back(0);
    ends[lane] = span->end;
    lanes.push_back(lane);
  }
  return lanes;
}

/// 1, 2 or 5 times a power of ten, for about `parts` steps over `length`.
double tick_step(double length, double parts) {
  const double rough = std::max(length / parts, 1e-9), power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

class Picture {
 public:
  Picture(const std::vector<Span>& spans, const std::string& title) : title_(title) {
    for (const Span& span : spans) {
      track(span.track).push_back(&span);
      if (span.kind.find("wait") == std::string::npos) kinds_.push_back(span.kind);
      begin_ = std::min(begin_, span.begin);
      end_ = std::max(end_, span.end);
      waits_ = waits_ || span.kind.find("wait") != std::string::npos;
    }
    if (spans.empty()) begin_ = end_ = 0;
    std::sort(kinds_.begin(), kinds_.end());
    kinds_.erase(std::unique(kinds_.begin(), kinds_.end()), kinds_.end());
  }

  std::string draw() {
    double y = header;
    for (auto& [track, spans] : tracks_) y = draw_track(track, spans, y);
    draw_axis(y);
    draw_legend();
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        "<text x=\"{2:.0f}\" y=\"24\" font-size=\"15\">{3}</text>\n{4}</svg>\n",
        gutter + width + margin, y + 50, margin, escaped(title_), body_);
  }

 private:
  using Track = std::pair<std::string, std::vector<const Span*>>;
  std::vector<const Span*>& track(const std::string& name) {
    const auto same = [&](const Track& track) { return track.first == name; };
    const auto at = std::find_if(tracks_.begin(), tracks_.end(), same);
    return at == tracks_.end() ? tracks_.emplace_back(name, std::vector<const Span*>()).second : at->second;
  }

  double x_of(double cycles) const { return gutter + (cycles - begin_) / std::max(end_ - begin_, 1e-9) * width; }

  double draw_track(const std::string& name, std::vector<const Span*>& spans, double y) {
    std::stable_sort(spans.begin(), spans.end(), [](const Span* a, const Span* b) { return a->begin < b->begin; });
    const auto lanes = lanes_of(spans);
    const size_t lane_count = spans.empty() ? 1 : *std::max_element(lanes.begin(), lanes.end()) + 1;
    body_ += fmt::format("<text x=\"{}\" y=\"{:.1f}\">{}</text>\n", margin, y + lane_height - 4, escaped(name));
    for (size_t i = 0; i < spans.size(); ++i) {
      const Span& span = *spans[i];
      const double x = x_of(span.begin);
      body_ += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"white\" "
          "stroke-width=\"0.3\"><title>{} ({:.0f} to {:.0f})</title></rect>\n",
          x, y + static_cast<double>(lanes[i]) * lane_height, std::max(0.5, x_of(span.end) - x), lane_height - 2,
          colour_of(span.kind, kinds_), escaped(span.detail), span.begin, span.end);
    }
    return y + static_cast<double>(lane_count) * lane_height + row_gap;
  }

  void draw_axis(double y) {
    body_ += fmt::format("<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"black\"/>\n", gutter, y,
                         gutter + width);
    const double step = tick_step(end_ - begin_, 10);
    for (double tick = std::ceil(begin_ / step) * step; tick <= end_; tick += step) {
      body_ += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"black\"/>",
                           x_of(tick), y, y + 5);
      body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.0f}</text>\n", x_of(tick), y + 19,
                           tick);
    }
    body_ += fmt::format(
        "<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"middle\">cycles of the emulator's model; SS: a wgmma with both "
        "operands in shared memory, RS: with A in registers</text>\n",
        gutter + width / 2, y + 38);
  }

  void draw_legend() {
    double x = gutter;
    std::vector<std::string> all = kinds_;
    if (waits_) all.emplace_back("wait");
    for (const std::string& kind : all) {
      body_ += fmt::format("<rect x=\"{:.0f}\" y=\"40\" width=\"14\" height=\"14\" fill=\"{}\"/>", x,
                           colour_of(kind, kinds_));
      body_ += fmt::format("<text x=\"{:.0f}\" y=\"52\">{}</text>\n", x + 20, escaped(kind));
      x += 40 + 7 * static_cast<double>(kind.size());
    }
  }

  const std::string& title_;
  std::vector<Track> tracks_;  // as the trace orders them
  std::vector<std::string> kinds_;
  bool waits_ = false;
  double begin_ = 1e300, end_ = 0;
  std::string body_;
};

}  // namespace

std::vector<Span> parse_trace(const std::string& text, const std::string& file) {
  const json trace = json::parse(text, nullptr, false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
    throw Failure(file + ": not a trace in Chrome's format");
  }
  try {
    std::map<int64_t, std::string> tracks;
    for (const json& event : trace["traceEvents"]) {
      if (event.at("ph") == "M")
        tracks[event.at("tid").get<int64_t>()] = event.at("args").at("name").get<std::string>();
    }
    std::map<int64_t, std::vector<Span>> by_track;
    for (const json& event : trace["traceEvents"]) {
      if (event.at("ph") != "X") continue;
      const double begin = event.at("ts").get<double>() * cycles_per_unit;
      const auto track = event.at("tid").get<int64_t>();
      by_track[track].push_back({tracks[track], event.at("cat").get<std::string>(), event.at("name").get<std::string>(),
                                 begin, begin + event.at("dur").get<double>() * cycles_per_unit});
    }
    std::vector<Span> spans;
    for (const auto& [track, list] : by_track) spans.insert(spans.end(), list.begin(), list.end());
    return spans;
  } catch (const json::exception& error) {
    throw Failure(fmt::format("{}: an event of the trace is malformed: {}", file, error.what()));
  }
}

std::vector<Span> within(const std::vector<Span>& spans, double begin, double end) {
  std::vector<Span> result;
  for (const Span& span : spans) {
    if (span.end <= begin || span.begin >= end) continue;
    result.push_back(span);
    result.back().begin = std::max(span.begin, begin);
    result.back().end = std::min(span.end, end);
  }
  return result;
}

std::string draw_timeline(const std::vector<Span>& spans, const std::string& title) {
  return Picture(spans, title).draw();
}

}  // namespace tandem::tools
