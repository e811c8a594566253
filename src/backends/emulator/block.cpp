// Blocks and threads: creation, names of places in shared memory, copies in flight.
#include "backends/emulator/block.hpp"

#include <cstdarg>
#include <cstddef>
#include <cstring>
#include <limits>

#include "backends/emulator/matrix.hpp"
#include "backends/emulator/scheduler.hpp"

namespace tandem::emulator {

thread_local Thread* current = nullptr;

namespace {

/// Registers per thread at launch: given, or what one block an SM can have, in the hardware's units of eight.
int launch_registers(const Run& run) {
  constexpr int registers_a_multiprocessor = 65536, most = 256;
  if (run.options.registers > 0) return run.options.registers;
  return std::min(most, registers_a_multiprocessor / run.threads / 8 * 8);
}

}  // namespace

Thread::Thread(Block& owner, int number)
    : block(owner),
      index(number),
      warp(number / warp_lanes),
      lane(number % warp_lanes),
      clocks(actor::count(owner.run().threads)) {
  clocks.generic[actor()] = 1;
}

Thread::~Thread() {
  // A fiber that never finished would be unwound by its destructor, but no unwinding passes the compiler's hooks, which
  // it takes for functions that don't throw. So it is abandoned: moved where no destructor runs.
  alignas(boost::context::fiber) std::byte grave[sizeof(boost::context::fiber)];
  if (fiber) new (grave) boost::context::fiber(std::move(fiber));
}

Block::Block(Scheduler& scheduler, int index, uint8_t* shared, Stacks& stacks)
    : scheduler_(scheduler),
      index_(index),
      shared_(shared),
      stacks_(stacks),
      warp(static_cast<size_t>(scheduler.run().threads / warp_lanes)),
      warpgroups(static_cast<size_t>((scheduler.run().threads + 127) / 128)),
      shadow(*this),
      timeline(scheduler.run().options, index == 0),
      live(scheduler.run().threads),
      register_pool(launch_registers(scheduler.run()) * ((scheduler.run().threads + 127) / 128)) {
  std::memset(shared_, 0xff, shared_bytes());  // NaN in every format
  for (Warpgroup& warpgroup : warpgroups) warpgroup.registers = launch_registers(run());
  threads.reserve(static_cast<size_t>(live));
  for (int i = 0; i < run().threads; ++i) threads.push_back(std::make_unique<Thread>(*this, i));
}

Block::~Block() = default;

Run& Block::run() const { return scheduler_.run(); }
const LaunchOptions& Block::options() const { return scheduler_.run().options; }
const Kernel& Block::kernel() const { return scheduler_.run().kernel; }
size_t Block::shared_bytes() const { return scheduler_.run().shared_bytes; }

std::string Block::name_of(uint32_t offset) const {
  const ptx::Part* best = nullptr;
  for (size_t i = 0; i < kernel().part_count; ++i) {
    const ptx::Part& part = kernel().parts[i];
    if (part.offset <= offset && (!best || part.offset >= best->offset)) best = &part;
  }
  if (!best || !best->element_bytes) return format("shared memory + 0x%x", offset);
  const size_t inside = offset - best->offset;
  std::string name = format("%s[%zu]", best->name, inside / best->element_bytes);
  if (inside % best->element_bytes) name += format("+0x%zx", inside % best->element_bytes);
  return name;
}

void Block::report(const char* kind, uintptr_t place, uintptr_t other, const char* text, ...) {
  char buffer[500];
  va_list list;
  va_start(list, text);
  std::vsnprintf(buffer, sizeof buffer, text, list);
  va_end(list);
  std::string full = std::string(buffer) + " [" + kernel().name + ", block " + std::to_string(index_);
  if (current) full += format(", warp %d lane %d", current->warp, current->lane);
  run().findings.add(kind, place, other, full + "]");
}

uint32_t Block::offset_of(const void* pointer, uintptr_t place, uint32_t alignment) {
  const auto distance = static_cast<size_t>(static_cast<const uint8_t*>(pointer) - shared_);
  if (distance >= shared_bytes()) {
    report("out of bounds", place, 0, "not an address in the block's shared memory");
    scheduler_.stop();
  }
  const auto offset = static_cast<uint32_t>(distance);
  if (offset % alignment) {
    report("misaligned", place, 0, "%s is not a multiple of %u bytes", name_of(offset).c_str(), alignment);
    if (alignment >= 8) scheduler_.stop();
  }
  return offset;
}

int Block::start(const Copy& issued) {
  Copy copy = issued;
  ++scheduler_.copies;
  if (timeline.on()) {
    copy.due = timeline.copy(*copy.issuer, copy.bytes, copy.kind != Copy::Kind::load, name_of(copy.shared));
  } else {
    const int delay = options().delay;
    copy.due = scheduler_.now() + (delay > 0 ? scheduler_.random() % static_cast<uint32_t>(delay) : 0);
  }
  const int index = static_cast<int>(copies.size());
  due_.emplace(copy.due, index);
  copies.push_back(copy);
  return index;
}

double Block::next_due() const { return due_.empty() ? std::numeric_limits<double>::infinity() : due_.top().first; }

void Block::finish_next() {
  Copy& copy = copies[static_cast<size_t>(due_.top().second)];
  due_.pop();
  finish(*this, copy);
}

void Block::assign_actors(Copy& copy) {
  const auto next = [this](int& actor, uint32_t& clock) {
    const int slot = next_slot_++ % actor::copy_slots;
    actor = actor::copy(slot);
    clock = ++copy_clock_[static_cast<size_t>(slot)];
  };
  next(copy.shared_actor, copy.shared_clock);
  next(copy.global_actor, copy.global_clock);
}

}  // namespace tandem::emulator
