// The timeline of an emulated block: read from a Chrome trace, drawn as SVG.
#pragma once

#include <string>
#include <vector>

namespace tandem::tools {

struct Span {
  std::string track;   // "producer", "consumer 0", "tensor core", "TMA"
  std::string kind;    // "wait", "S = Q K^T (SS)", "load"
  std::string detail;  // with the kind in front: "wait key_full[0]"
  double begin, end;   // cycles
};

/// Spans of a trace in Chrome's format, track by track, as the emulator writes it; Failure, naming `file`, where it
/// isn't one.
std::vector<Span> parse_trace(const std::string& text, const std::string& file);

/// Those that touch [begin, end], cut to it.
std::vector<Span> within(const std::vector<Span>& spans, double begin, double end);

/// One row a track, split into lanes where spans overlap; one colour a kind; a legend and an axis of cycles.
std::string draw_timeline(const std::vector<Span>& spans, const std::string& title);

}  // namespace tandem::tools
