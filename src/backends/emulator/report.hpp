// Findings: each kind and place once, with how often it happened, and the source lines of both sides.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tandem::emulator {

/// What a check found. `place` and `other` are return addresses in kernel code; 0 if there is none.
struct Finding {
  const char* kind;
  std::string text;
  uintptr_t place, other;
  int count;
};

class Findings {
 public:
  /// Adds a finding, or counts it if this kind was found at this place before.
  void add(const char* kind, uintptr_t place, uintptr_t other, const std::string& text);
  int size() const;
  /// The finding as text for people: what, where, how often.
  std::vector<std::string> describe() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Finding> list_;
};

/// "consumer.cuh:120 < kernel.cuh:88": the line of a return address, and those that it was inlined into.
std::string source_lines(uintptr_t return_address);

[[gnu::format(printf, 1, 2)]] std::string format(const char* text, ...);

}  // namespace tandem::emulator
