// The scheduler: picks a random ready warp and runs its lanes, lets copies complete when they are due, and says who
// waits for what when nothing can go on.
#include "backends/emulator/scheduler.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <new>
#include <thread>

namespace tandem::emulator {

Run::Run(const Kernel& kernel_, int grid_, int threads_, size_t shared_bytes_, const void* parameters_,
         const LaunchOptions& options_)
    : kernel(kernel_),
      grid(grid_),
      threads(threads_),
      shared_bytes(shared_bytes_),
      parameters(parameters_),
      options(options_),
      global(options, parameters_, kernel_.parameter_bytes) {}

void Run::execute() {
  const int workers = std::max(1, std::min(options.host_threads, grid));
  if (workers == 1) {
    Scheduler(*this, 0, std::max(1, options.sms)).execute();
    return;
  }
  std::vector<std::thread> pool;
  for (int worker = 0; worker < workers; ++worker)
    pool.emplace_back([this, worker] { Scheduler(*this, worker, 1).execute(); });
  for (std::thread& thread : pool) thread.join();
}

Scheduler::Seat::Seat(int threads) : stacks(threads) {
  void* memory = mmap(nullptr, 256 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  shared = static_cast<uint8_t*>(memory);
}
Scheduler::Seat::~Seat() {
  block.reset();
  munmap(shared, 256 << 10);
}

Scheduler::Scheduler(Run& run, int worker, int resident)
    : run_(run),
      random_state_((run.options.seed * 2 + 1) * 0x9E3779B97F4A7C15ull +
                    static_cast<uint64_t>(worker) * 0xD1B54A32D192ED03ull) {
  for (int i = 0; i < std::min(resident, run.grid); ++i) seats_.push_back(std::make_unique<Seat>(run.threads));
}

Scheduler::~Scheduler() {
  current = nullptr;
  seats_.clear();
  run_.switches += switches_;
  run_.accesses += accesses;
  run_.wgmmas += wgmmas;
  run_.copies += copies;
}

uint32_t Scheduler::random() {  // xorshift64
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return static_cast<uint32_t>(random_state_ >> 16);
}

void Scheduler::execute() {
  while (!run_.stopped && admit()) {
    while (!run_.stopped && step()) {
      bool seat_free = false;
      for (const auto& seat : seats_) {
        if (seat->block && seat->block->live == 0) retire(*seat);
        seat_free = seat_free || !seat->block;
      }
      if (seat_free) break;
    }
  }
}

bool Scheduler::admit() {
  bool any = false;
  for (const auto& seat : seats_) {
    if (!seat->block) {
      const int index = run_.next_block++;
      if (index >= run_.grid) continue;
      seat->block = std::make_unique<Block>(*this, index, seat->shared, seat->stacks);
      for (auto& thread : seat->block->threads) {
        thread->fiber = boost::context::fiber(std::allocator_arg, BorrowedStack{seat->stacks.context(thread->index)},
                                              [this, self = thread.get()](boost::context::fiber&& main) {
                                                main_ = std::move(main);
                                                self->block.kernel().function(self->block.run().parameters);
                                                end(*self);
                                                return std::move(main_);
                                              });
      }
    }
    any = true;
  }
  return any;
}

void Scheduler::end(Thread& self) {
  Block& block = self.block;
  if (!self.wgmma.accumulators.empty())
    block.report("missing wgmma wait", 0, 0, "a thread ends with accumulators in flight");
  bool reading = !self.bulk.open.empty();
  for (const BulkGroups::Group& group : self.bulk.committed) reading = reading || !group.read;
  if (reading)
    block.report("missing bulk wait", 0, 0, "a thread ends with TMA stores that may still read its shared memory");
  self.done = true;
  idle_rounds_ = 0;
  --block.live;
  block.warp_at(self.warp).ready &= ~(1u << self.lane);
}

void Scheduler::retire(Seat& seat) {
  Block& block = *seat.block;
  current = nullptr;
  while (block.next_due() < std::numeric_limits<double>::infinity()) block.finish_next();
  for (const Copy& copy : block.copies) {
    if (copy.kind != Copy::Kind::load) continue;
    const bool waited = std::any_of(block.threads.begin(), block.threads.end(), [&](const auto& thread) {
      return thread->clocks.generic[copy.shared_actor] >= copy.shared_clock;
    });
    if (!waited)
      block.report("use before completion", copy.place, 0, "the block ends, and nobody waited for a TMA load into %s",
                   block.name_of(copy.shared).c_str());
  }
  if (run_.options.timing)
    for (const auto& thread : block.threads) run_.cycles = std::max(run_.cycles, thread->time);
  seat.block.reset();
}

bool Scheduler::finish_copy(double limit) {
  Block* first = nullptr;
  for (const auto& seat : seats_)
    if (seat->block && (!first || seat->block->next_due() < first->next_due())) first = seat->block.get();
  if (!first || first->next_due() > limit || first->next_due() == std::numeric_limits<double>::infinity()) return false;
  now_ = std::max(now_, first->next_due());
  woken_at_ = first->next_due();
  current = nullptr;
  first->finish_next();
  return true;
}

bool Scheduler::step() {
  if (!run_.options.timing) ++now_;
  ready_.clear();
  for (const auto& seat : seats_) {
    if (!seat->block) continue;
    for (int warp = 0; warp < seat->block->warps(); ++warp)
      if (seat->block->warp_at(warp).ready) ready_.emplace_back(seat->block.get(), warp);
  }
  if (ready_.empty()) {
    if (finish_copy(std::numeric_limits<double>::infinity())) return true;
    if (wake_pollers()) return true;
    report_deadlock();
    run_.stopped = true;
    return false;
  }
  auto chosen = ready_[random() % ready_.size()];
  double limit = now_;
  if (run_.options.timing) {
    limit = std::numeric_limits<double>::infinity();
    for (const auto& [block, warp] : ready_) {
      for (uint32_t lanes = block->warp_at(warp).ready; lanes; lanes &= lanes - 1) {
        const Thread& thread = block->thread(warp * warp_lanes + std::countr_zero(lanes));
        if (thread.time >= limit) continue;
        limit = thread.time;
        chosen = {block, warp};
      }
    }
  }
  if (finish_copy(limit)) return true;
  run_warp(*chosen.first, chosen.first->warp_at(chosen.second));
  return true;
}

void Scheduler::run_warp(Block& block, Warp& warp) {
  const int first = static_cast<int>(&warp - block.warp.data()) * warp_lanes;
  uint32_t lanes = warp.ready;
  while (lanes && !run_.stopped) {
    const int lane = std::countr_zero(lanes);
    lanes &= lanes - 1;
    resume(block.thread(first + lane));
    // Staying with a warp most of the time is faster, and leaves the order as random as before.
    if (!lanes && !run_.options.timing && (random() & 3)) lanes = warp.ready;
  }
}

void Scheduler::resume(Thread& thread) {
  current = &thread;
  if (++switches_ % check_interval == 0) end_hopeless_run();
  thread.fiber = std::move(thread.fiber).resume();
  current = nullptr;
}

void Scheduler::end_hopeless_run() {
  constexpr int patience = 40;  // about ten million switches: seconds
  if (run_.findings.size() == 0 || ++checks_since_finding_ < patience) return;
  run_.findings.add("no end", 0, 0, "the launch goes on long after its first fault, and was ended");
  run_.stopped = true;
}

void Scheduler::suspend(Waiting on, const char* what, int64_t object, int argument, uintptr_t place) {
  Thread& self = *current;
  self.blocked = true;
  self.wait = {on, what, object, argument, place};
  self.block.warp_at(self.warp).ready &= ~(1u << self.lane);
  main_ = std::move(main_).resume();
}

void Scheduler::yield() { main_ = std::move(main_).resume(); }

void Scheduler::stop() {
  run_.stopped = true;
  for (;;) main_ = std::move(main_).resume();
}

void Scheduler::wake(Thread& thread) {
  if (!thread.blocked) return;
  idle_rounds_ = 0;
  thread.blocked = false;
  thread.wait.on = Waiting::nothing;
  thread.time = std::max(thread.time, current ? current->time : woken_at_);
  thread.block.warp_at(thread.warp).ready |= 1u << thread.lane;
}

void Scheduler::flag_changed() {
  wake_pollers();
  idle_rounds_ = 0;
}

bool Scheduler::wake_pollers() {
  constexpr int most_idle_rounds = 8;  // a poll that isn't a loop goes on after one
  const int rounds = idle_rounds_ + 1;
  if (rounds > most_idle_rounds) return false;
  bool any = false;
  for (const auto& seat : seats_) {
    if (!seat->block) continue;
    for (const auto& thread : seat->block->threads) {
      const Waiting on = thread->wait.on;
      if (!thread->blocked || (on != Waiting::flag && on != Waiting::mbarrier_poll)) continue;
      wake(*thread);
      any = true;
    }
  }
  idle_rounds_ = rounds;
  return any;
}

namespace {

std::string waits_for(const Block& block, const Thread& thread) {
  const auto object = static_cast<uint32_t>(thread.wait.object);
  switch (thread.wait.on) {
    case Waiting::mbarrier:
    case Waiting::mbarrier_poll: {
      const MBarrier& barrier = *block.mbarriers.at(object);
      std::string text =
          format("mbarrier %s, parity %d (phase %u, %d arrivals and %ld bytes missing", block.name_of(object).c_str(),
                 thread.wait.argument, barrier.phase, barrier.pending, static_cast<long>(barrier.bytes));
      if (barrier.last_thread >= 0)
        text += format("; last arrival by warp %d at %s", barrier.last_thread / warp_lanes,
                       source_lines(barrier.last_place).c_str());
      return text + ")";
    }
    case Waiting::named_barrier: {
      const NamedBarrier& barrier = block.named_barriers[object];
      return format("named barrier %u (%d of %d threads arrived)", object, barrier.arrived, barrier.threads);
    }
    case Waiting::registers:
      return format("setmaxnreg %d", thread.wait.argument);
    case Waiting::flag:
      return format("a flag in global memory that holds %d", thread.wait.argument);
    default:
      return format("the other lanes or warps at %s", thread.wait.what);
  }
}

}  // namespace

void Scheduler::report_deadlock() {
  std::string text = "no thread can go on";
  for (const auto& seat : seats_) {
    if (!seat->block) continue;
    for (int warp = 0; warp < seat->block->warps(); ++warp) {
      std::map<std::string, int> lanes;
      for (int lane = 0; lane < warp_lanes; ++lane) {
        const Thread& thread = seat->block->thread(warp * warp_lanes + lane);
        if (!thread.done) ++lanes[waits_for(*seat->block, thread) + " at " + source_lines(thread.wait.place)];
      }
      for (const auto& [what, count] : lanes)
        text += format("\n  block %d warp %d, %d lanes wait for ", seat->block->index(), warp, count) + what;
    }
  }
  run_.findings.add("deadlock", 0, 0, text);
}

}  // namespace tandem::emulator
