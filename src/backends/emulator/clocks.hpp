// Vector clocks: which accesses happen before which. An actor is a thread of the block, the wgmmas of one warp (they
// read shared memory until that warp waits for them), or a copy of the TMA unit in flight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace tandem::emulator {

constexpr int warp_lanes = 32;
constexpr int max_threads = 1024;
constexpr int max_warps = max_threads / warp_lanes;

/// Actors are numbered copies first, then the wgmmas of warps, then threads.
namespace actor {
constexpr int copy_slots = 128;
constexpr int copy(int slot) { return slot; }
constexpr int wgmma(int warp) { return copy_slots + warp; }
constexpr int thread(int index) { return copy_slots + max_warps + index; }
constexpr int count(int threads) { return thread(threads); }
}  // namespace actor

class VectorClock {
 public:
  explicit VectorClock(int actors = 0) : at_(static_cast<size_t>(actors)) {}
  uint32_t& operator[](int actor) { return at_[static_cast<size_t>(actor)]; }
  uint32_t operator[](int actor) const { return at_[static_cast<size_t>(actor)]; }
  /// For clocks that may still be empty.
  uint32_t get(int actor) const {
    return static_cast<size_t>(actor) < at_.size() ? at_[static_cast<size_t>(actor)] : 0;
  }
  void clear() { std::fill(at_.begin(), at_.end(), 0u); }
  void join(const VectorClock& other) {
    if (at_.size() < other.at_.size()) at_.resize(other.at_.size());
    for (size_t i = 0; i < other.at_.size(); ++i) at_[i] = std::max(at_[i], other.at_[i]);
  }
  void meet(const VectorClock& other) {
    for (size_t i = 0; i < at_.size(); ++i) at_[i] = std::min(at_[i], other.at_[i]);
  }

 private:
  std::vector<uint32_t> at_;
};

/// What a point of a thread's execution comes after: `generic` holds the accesses that happen before it; `async` those
/// of them to shared memory that a proxy fence has made visible to the asynchronous proxy (PTX ISA, "Memory Consistency
/// Model", "Proxies"), `global_async` those to global memory (empty until a kernel needs it). `others` holds what is
/// known of other blocks, through flags in global memory; nearly always nothing.
struct Clocks {
  struct Views {
    VectorClock generic, global_async;
  };
  using Others = std::map<int, Views>;

  VectorClock generic, async, global_async;
  std::shared_ptr<const Others> others;

  Clocks() = default;
  explicit Clocks(int actors) : generic(actors), async(actors) {}

  void clear() {
    generic.clear();
    async.clear();
    global_async.clear();
    others.reset();
  }
  void join(const Clocks& other) {
    generic.join(other.generic);
    async.join(other.async);
    global_async.join(other.global_async);
    if (other.others && other.others != others) join_others(*other.others);
  }
  void join_others(const Others& more) {
    auto merged = others ? std::make_shared<Others>(*others) : std::make_shared<Others>();
    for (const auto& [block, views] : more) {
      Views& mine = (*merged)[block];
      mine.generic.join(views.generic);
      mine.global_async.join(views.global_async);
    }
    others = std::move(merged);
  }
};

}  // namespace tandem::emulator
