// mbarriers, named barriers and fences, with the order that they bring (PTX ISA, "Parallel Synchronization and
// Communication Instructions").
#include "backends/emulator/barriers.hpp"

#include "backends/emulator/copies.hpp"
#include "backends/emulator/mbarrier.hpp"
#include "backends/emulator/scheduler.hpp"

namespace tandem::emulator {

namespace {

/// Marks the eight bytes of an initialised mbarrier: a store over them shows.
constexpr uint64_t mark(uint32_t offset) { return 0x6d62617272690000ull ^ offset; }

constexpr int64_t most_bytes = (1 << 20) - 1;  // PTX ISA, "Tracking asynchronous operations by the mbarrier object"
constexpr int most_arrivals = (1 << 20) - 1;

/// Gives what the thread comes after to a barrier.
void release(Clocks& to) {
  to.join(current->clocks);
  ++current->clocks.generic[current->actor()];
}

void arrive_at(MBarrier& barrier, uintptr_t place) {
  if (barrier.pending == 0) {
    current->block.report("too many arrivals", place, barrier.last_place, "mbarrier %s expects %d in a phase",
                          current->block.name_of(barrier.offset).c_str(), barrier.expected);
    return;
  }
  release(barrier.arriving);
  --barrier.pending;
  barrier.last_thread = current->index;
  barrier.last_place = place;
  scheduler().progress();
  complete_phase(current->block, barrier);
}

}  // namespace

MBarrier& mbarrier(ptx::Barrier& object, uintptr_t place) {
  Block& block = current->block;
  const uint32_t offset = block.offset_of(&object, place, 8);
  const auto it = block.mbarriers.find(offset);
  if (it == block.mbarriers.end()) {
    block.report("uninitialised", place, 0, "mbarrier %s was never initialised", block.name_of(offset).c_str());
    scheduler().stop();
  }
  if (object.state != mark(offset)) block.report("mbarrier overwritten", place, 0, "%s", block.name_of(offset).c_str());
  uintptr_t writer = 0;
  if (!block.shadow.written_before(*current, offset, false, &writer))
    block.report("race", place, writer, "mbarrier %s is used before its initialisation is visible",
                 block.name_of(offset).c_str());
  return *it->second;
}

void complete_phase(Block& block, MBarrier& barrier) {
  if (barrier.pending || barrier.bytes) return;
  std::swap(barrier.completed[barrier.phase & 1], barrier.arriving);
  barrier.arriving.clear();
  ++barrier.phase;
  barrier.pending = barrier.expected;
  for (Thread* thread : barrier.waiting) block.scheduler().wake(*thread);
  barrier.waiting.clear();
}

void init(ptx::Barrier& object, int arrivals) {
  const uintptr_t place = TANDEM_PLACE;
  Block& block = current->block;
  const uint32_t offset = block.offset_of(&object, place, 8);
  if (arrivals < 1 || arrivals > most_arrivals)
    block.report("bad arrival count", place, 0, "mbarrier %s: %d", block.name_of(offset).c_str(), arrivals);
  if (block.mbarriers.count(offset))
    block.report("initialised twice", place, 0, "mbarrier %s is valid already", block.name_of(offset).c_str());
  block.shadow.generic(*current, offset, 8, true, place);
  object.state = mark(offset);
  auto barrier = std::make_unique<MBarrier>();
  barrier->offset = offset;
  barrier->expected = barrier->pending = arrivals;
  block.mbarriers[offset] = std::move(barrier);
}

void arrive(ptx::Barrier& object) {
  const uintptr_t place = TANDEM_PLACE;
  arrive_at(mbarrier(object, place), place);
  scheduler().maybe_preempt();
}

void arrive_expect(ptx::Barrier& object, int bytes) {
  const uintptr_t place = TANDEM_PLACE;
  MBarrier& barrier = mbarrier(object, place);
  barrier.bytes += bytes;
  if (bytes < 0 || barrier.bytes > most_bytes)
    current->block.report("transaction bytes", place, 0, "mbarrier %s: %d bytes expected at once",
                          current->block.name_of(barrier.offset).c_str(), bytes);
  arrive_at(barrier, place);
  scheduler().maybe_preempt();
}

namespace {

void wait_at(MBarrier& barrier, int parity, uintptr_t place) {
  Block& block = current->block;
  if (parity != 0 && parity != 1) block.report("bad parity", place, 0, "%d; only 0 and 1 are phases", parity);
  const double begin = current->time;
  while (static_cast<int>(barrier.phase & 1) == parity) {
    barrier.waiting.push_back(current);
    scheduler().suspend(Waiting::mbarrier, "mbarrier", barrier.offset, parity, place);
  }
  if (block.timeline.on()) {
    block.timeline.waited(*current, "wait", block.name_of(barrier.offset), begin);
    current->time += 10;
  }
  current->clocks.join(barrier.completed[parity & 1]);
}

}  // namespace

/// Like the hardware's, it waits for a while: until the phase completes, or until nothing else can go on.
bool try_wait(ptx::Barrier& object, int parity) {
  const uintptr_t place = TANDEM_PLACE;
  MBarrier& barrier = mbarrier(object, place);
  if (static_cast<int>(barrier.phase & 1) == parity) {
    barrier.waiting.push_back(current);
    scheduler().suspend(Waiting::mbarrier_poll, "mbarrier", barrier.offset, parity, place);
    std::erase(barrier.waiting, current);
    if (static_cast<int>(barrier.phase & 1) == parity) return false;
  }
  wait_at(barrier, parity, place);
  return true;
}

void wait(ptx::Barrier& object, int parity) {
  const uintptr_t place = TANDEM_PLACE;
  wait_at(mbarrier(object, place), parity, place);
}

namespace {

/// A barrier may serve another set of threads only after the last use is known to be over: else the two could meet.
void check_reuse(const NamedBarrier& barrier, int id, int threads, uintptr_t place) {
  if (!barrier.previous_threads || barrier.previous_threads == threads) return;
  const Block& block = current->block;
  for (int thread = 0; thread < block.thread_count(); ++thread) {
    const int actor = actor::thread(thread);
    if (barrier.previous.get(actor) <= current->clocks.generic[actor]) continue;
    current->block.report("barrier id clash", place, barrier.place,
                          "barrier %d: %d threads here; its last use, of %d, isn't known to be over", id, threads,
                          barrier.previous_threads);
    return;
  }
}

/// An arrival at a named barrier; `wait` for bar.sync.
void named_barrier(int id, int threads, bool wait, uintptr_t place) {
  Block& block = current->block;
  if (id < 0 || id > 15 || threads <= 0 || threads % warp_lanes) {
    block.report("bad barrier", place, 0, "barrier %d with %d threads: ids are 0 to 15, counts multiples of 32", id,
                 threads);
    scheduler().stop();
  }
  NamedBarrier& barrier = block.named_barriers[static_cast<size_t>(id)];
  if (barrier.arrived && barrier.threads != threads)
    block.report("barrier id clash", place, barrier.place, "barrier %d: %d threads expected here, %d by warp %d", id,
                 threads, barrier.threads, barrier.last_thread / warp_lanes);
  for (const Thread* thread : barrier.waiting)
    if (thread == current) block.report("barrier id clash", place, barrier.place, "barrier %d", id);
  if (!barrier.arrived) {
    check_reuse(barrier, id, threads, place);
    barrier.threads = threads;
    barrier.place = place;
  }
  barrier.last_thread = current->index;
  release(barrier.clocks);
  if (++barrier.arrived == barrier.threads) {
    if (wait) current->clocks.join(barrier.clocks);
    for (Thread* thread : barrier.waiting) {
      thread->clocks.join(barrier.clocks);
      block.scheduler().wake(*thread);
    }
    barrier.waiting.clear();
    barrier.arrived = 0;
    barrier.previous_threads = barrier.threads;
    std::swap(barrier.previous, barrier.clocks.generic);
    barrier.clocks.clear();
  } else if (wait) {
    const double begin = current->time;
    barrier.waiting.push_back(current);
    scheduler().suspend(Waiting::named_barrier, "bar.sync", id, threads, place);
    if (block.timeline.on()) {
      current->time += 10;
      block.timeline.waited(*current, "barrier", std::to_string(id), begin);
    }
  }
}

}  // namespace

void barrier_sync(int id, int threads) { named_barrier(id, threads, true, TANDEM_PLACE); }
void barrier_arrive(int id, int threads) { named_barrier(id, threads, false, TANDEM_PLACE); }
void sync_block() { named_barrier(0, current->block.thread_count(), true, TANDEM_PLACE); }

void fence_proxy_async(bool shared, bool global) {
  Clocks& clocks = current->clocks;
  if (shared) clocks.async.join(clocks.generic);
  if (global) clocks.global_async.join(clocks.generic);
  ++clocks.generic[current->actor()];
}
void fence_barrier_init() { fence_proxy_async(true, current->wrote_global); }

}  // namespace tandem::emulator
