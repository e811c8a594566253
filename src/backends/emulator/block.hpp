// A block in the emulator: its threads, shared memory and everything that lives in it. One object a block, so that
// several can be resident at once and host threads can run blocks of their own.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "backends/emulator/barriers.hpp"
#include "backends/emulator/clocks.hpp"
#include "backends/emulator/copies.hpp"
#include "backends/emulator/fibers.hpp"
#include "backends/emulator/report.hpp"
#include "backends/emulator/shadow.hpp"
#include "backends/emulator/timeline.hpp"
#include "backends/emulator/wgmma.hpp"

namespace tandem::emulator {

class Block;
class Run;
class Scheduler;

/// Why a thread doesn't run.
enum class Waiting { nothing, collective, mbarrier, mbarrier_poll, named_barrier, wgmma, bulk, registers, flag };

struct Thread {
  Thread(Block& block, int index);
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  Block& block;
  int index, warp, lane;
  boost::context::fiber fiber;
  bool done = false, blocked = false;
  struct {
    Waiting on = Waiting::nothing;
    const char* what = "";
    int64_t object = 0;
    int argument = 0;
    uintptr_t place = 0;
  } wait;
  Clocks clocks;
  double time = 0;  // virtual; only with LaunchOptions::timing
  int work = 0;     // instrumented accesses and special functions since the warp's last rendezvous
  WgmmaThread wgmma;
  BulkGroups bulk;
  const int* polled = nullptr;  // the flag that load_acquire read last, and what it held
  int polled_value = 0;
  bool wrote_global = false;

  int actor() const { return actor::thread(index); }
};

/// The thread that runs on this host thread now; null in the scheduler and outside of launches.
#if defined(__GNUC__) && defined(__linux__)
extern thread_local Thread* current __attribute__((tls_model("initial-exec")));
#else
extern thread_local Thread* current;
#endif

/// A warp's rendezvous at an instruction that all its lanes execute together.
struct Warp {
  const char* instruction = "";
  uintptr_t place = 0;
  int arrived = 0;
  std::array<std::array<uint32_t, 6>, warp_lanes> in{};
  std::array<std::array<uint32_t, 4>, warp_lanes> out{};
  uint32_t ready = ~0u;  // lanes that can run
  uint32_t wgmma_clock = 0;
  VectorClock slowest_generic, slowest_async;  // what every lane comes after
};

class Block {
  using Due = std::pair<double, int>;

  Scheduler& scheduler_;
  const int index_;
  uint8_t* const shared_;
  Stacks& stacks_;

 public:
  Block(Scheduler& scheduler, int index, uint8_t* shared, Stacks& stacks);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Scheduler& scheduler() const { return scheduler_; }
  Run& run() const;
  const LaunchOptions& options() const;
  const Kernel& kernel() const;
  int index() const { return index_; }
  int thread_count() const { return static_cast<int>(threads.size()); }
  int warps() const { return static_cast<int>(warp.size()); }
  size_t shared_bytes() const;
  uint8_t* shared() const { return shared_; }
  Stacks& stacks() const { return stacks_; }

  Thread& thread(int index) { return *threads[static_cast<size_t>(index)]; }
  Warp& warp_at(int index) { return warp[static_cast<size_t>(index)]; }
  Warpgroup& warpgroup_of(const Thread& thread) { return warpgroups[static_cast<size_t>(thread.index / 128)]; }

  /// "key[1]+0x400": what the shared-memory struct calls this place.
  std::string name_of(uint32_t offset) const;
  [[gnu::format(printf, 5, 6)]] void report(const char* kind, uintptr_t place, uintptr_t other, const char* text, ...);
  /// The offset of a pointer into shared memory; reports one that isn't, or isn't aligned.
  uint32_t offset_of(const void* pointer, uintptr_t place, uint32_t alignment);

  /// Starts a copy: it completes after a random delay.
  int start(const Copy& copy);
  /// When the next copy completes; infinity if none is in flight.
  double next_due() const;
  void finish_next();
  /// The next actors for a copy, with their clocks advanced.
  void assign_actors(Copy& copy);

  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Warp> warp;
  std::vector<Warpgroup> warpgroups;
  std::array<NamedBarrier, 16> named_barriers;
  std::map<uint32_t, std::unique_ptr<MBarrier>> mbarriers;
  std::deque<Copy> copies;
  SharedShadow shadow;
  Timeline timeline;
  int live;
  int register_pool;

 private:
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::array<uint32_t, actor::copy_slots> copy_clock_{};
  int next_slot_ = 0;
};

/// Puts a copy's bytes where they belong (tma.cpp).
void finish(Block& block, Copy& copy);

}  // namespace tandem::emulator
