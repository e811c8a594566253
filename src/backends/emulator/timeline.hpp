// A rough model of time, in cycles, for pictures of a block's timeline: the earliest thread runs, the tensor cores take
// N/2 cycles per wgmma, copies take 600 cycles and share 32 bytes a cycle, special functions take 8 and everything else
// that is instrumented 1 of a warp's quarter of the SM. Good for teaching, not for tuning.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "backends/emulator/clocks.hpp"
#include "backends/emulator/interface.hpp"

namespace tandem::emulator {

class Block;
struct Thread;

class Timeline {
 public:
  static constexpr int special_function_cost = 8;

  explicit Timeline(const LaunchOptions& options, bool traced) : options_(options), traced_(traced) {}

  bool on() const { return options_.timing; }
  /// A warp has met: the arithmetic of its lanes since the last time takes its quarter of the SM.
  void rendezvous(Block& block, int warp);
  /// A copy begins; returns when it completes.
  double copy(Thread& issuer, int bytes, bool store, const std::string& detail);
  /// A wgmma whose last warp arrived at `ready` runs; returns when it ends.
  double wgmma(int warpgroup, int width, bool from_registers, double ready);
  /// A warpgroup gives registers away, as producers do, or takes them, as consumers do (FA-3 Algorithm 1).
  void registers(const Thread& thread, bool up);
  /// A thread waited from `begin` until now.
  void waited(const Thread& thread, const char* kind, const std::string& detail, double begin);

 private:
  void event(const char* track, const char* kind, const std::string& detail, double begin, double end);

  const LaunchOptions& options_;
  bool traced_;
  double tensor_free_ = 0, copies_free_ = 0;
  std::array<double, 4> quarter_free_{};
};

}  // namespace tandem::emulator
