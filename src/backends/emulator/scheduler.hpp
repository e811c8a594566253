// Runs the threads of the resident blocks, in a seeded random order, until the grid is done or nothing can go on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/emulator/block.hpp"
#include "backends/emulator/global_memory.hpp"

/// The kernel's source line, for reports: the return address of a function of runtime.hpp, which must use it itself.
#define TANDEM_PLACE reinterpret_cast<uintptr_t>(__builtin_return_address(0))

namespace tandem::emulator {

/// A launch: what all its blocks share.
class Run {
 public:
  Run(const Kernel& kernel, int grid, int threads, size_t shared_bytes, const void* parameters,
      const LaunchOptions& options);

  /// Runs the grid.
  void execute();

  const Kernel& kernel;
  const int grid, threads;
  const size_t shared_bytes;
  const void* const parameters;
  const LaunchOptions options;
  Findings findings;
  GlobalMemory global;
  std::atomic<int> next_block{0};
  std::atomic<bool> stopped{false};  // after a finding that nothing can be run beyond
  std::atomic<int64_t> switches{0}, accesses{0}, wgmmas{0}, copies{0};
  double cycles = 0;
};

class Scheduler {
 public:
  Scheduler(Run& run, int worker, int resident);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void execute();

  Run& run() const { return run_; }
  uint32_t random();
  /// Scheduler steps, or cycles of virtual time.
  double now() const { return now_; }

  // Called by the current thread.
  void suspend(Waiting on, const char* what, int64_t object, int argument, uintptr_t place);
  void yield();
  void maybe_preempt() {
    if (run_.options.preempt && random() % static_cast<uint32_t>(run_.options.preempt) == 0) yield();
  }
  /// Ends the launch: the current thread never runs again.
  [[noreturn]] void stop();
  void wake(Thread& thread);
  /// Something changed that a poll may wait for, though it wakes nobody.
  void progress() { idle_rounds_ = 0; }
  /// A flag in global memory changed: those who poll it look again.
  void flag_changed();

  int64_t accesses = 0, wgmmas = 0, copies = 0;

 private:
  struct Seat {  // what a resident block needs, kept from one to the next
    explicit Seat(int threads);
    ~Seat();
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;
    Stacks stacks;
    uint8_t* shared;
    std::unique_ptr<Block> block;
  };

  bool admit();
  void end(Thread& self);
  /// One step; false if nothing can go on.
  bool step();
  bool finish_copy(double limit);
  void run_warp(Block& block, Warp& warp);
  void resume(Thread& thread);
  bool wake_pollers();
  /// A fault may make a kernel run for ever.
  void end_hopeless_run();
  void retire(Seat& seat);
  void report_deadlock();

  Run& run_;
  uint64_t random_state_;
  double now_ = 0;
  double woken_at_ = 0;
  int idle_rounds_ = 0;
  static constexpr int64_t check_interval = 1 << 18;
  int64_t switches_ = 0;
  int checks_since_finding_ = 0;
  boost::context::fiber main_;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<std::pair<Block*, int>> ready_;
};

/// Suspends the current thread, from the files that carry out its instructions.
inline Scheduler& scheduler() { return current->block.scheduler(); }

}  // namespace tandem::emulator
