// Asynchronous execution of wgmma (PTX ISA, "Asynchronous warpgroup-level matrix instructions"). An operation is queued
// when the four warps of a warpgroup have issued it and runs at a random moment between then and its wait, so that a
// program that reads its results or changes its operands too early goes wrong; most such faults are reported as well.
#include "backends/emulator/wgmma.hpp"

#include <algorithm>
#include <cstring>

#include "backends/emulator/collective.hpp"
#include "backends/emulator/matrix.hpp"
#include "backends/emulator/scheduler.hpp"

namespace tandem::emulator {

namespace {

constexpr int warpgroup_threads = 128;
constexpr uint32_t poison_value = 0x7fa5e5e5;  // a signalling NaN with a payload of the emulator's own

bool overlaps(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

Warpgroup& own_warpgroup() {
  return current->block.warpgroups[static_cast<size_t>(current->index / warpgroup_threads)];
}

Operand operand(ptx::Descriptor descriptor, ptx::Major major, int rows, ElementKind element) {
  const bool wide = element == ElementKind::bf16 || element == ElementKind::fp16;
  return {decode(descriptor), major, rows, wide ? 2 : 1};
}

/// PTX ISA, "Matrix Descriptor Format": the swizzle pattern must begin at a multiple of its size, or the base offset
/// say where it does.
void check_descriptor(const Operand& operand, const char* which, uintptr_t place) {
  const DecodedDescriptor& d = operand.at;
  if (d.swizzle && d.start / static_cast<uint32_t>(d.swizzle) % 8 != 0)
    current->block.report("misaligned descriptor", place, 0,
                          "operand %s begins at 0x%x, in the middle of a %d-byte swizzle pattern", which, d.start,
                          8 * d.swizzle);
}

void run_operation(Block& block, WgmmaOperation& operation) {
  const int width = 2 * operation.shape.accumulators;
  thread_local std::vector<uint32_t> tile;  // too large for a fiber's stack
  tile.resize(static_cast<size_t>(64 * width));
  const auto each = [&](auto move) {
    for (int thread = 0; thread < warpgroup_threads; ++thread)
      for (int i = 0; i < operation.shape.accumulators; ++i)
        move(tile[static_cast<size_t>(accumulator_row(thread, i) * width + accumulator_column(thread, i))],
             operation.accumulators[static_cast<size_t>(thread)]->values[static_cast<size_t>(i)]);
  };
  if (operation.accumulate) each([](uint32_t& element, const uint32_t& value) { element = value; });
  const ElementKind element = operation.shape.element;
  multiply(operation.shape, operand(operation.a, operation.shape.a_major, 64, element),
           operation.from_registers ? reinterpret_cast<Fragments>(operation.a_registers.data()) : nullptr,
           operand(operation.b, operation.shape.b_major, width, element), {block.shared(), block.shared_bytes()},
           operation.accumulate, block.options().exact_sums, tile.data());
  each([](const uint32_t& element, uint32_t& value) { value = element; });
  operation.done = true;
}

/// Runs the queue in order up to operation number `end`, as far as all warps have issued it.
void run_until(Block& block, Warpgroup& warpgroup, uint64_t end) {
  for (; warpgroup.executed < end; ++warpgroup.executed) {
    WgmmaOperation& operation = *warpgroup.queue[warpgroup.executed - warpgroup.first];
    if (operation.arrived < warpgroup_threads) return;
    run_operation(block, operation);
  }
}

/// What the warp's wgmma reads from shared memory, on behalf of its slowest lane. Each warp counts as a reader of all
/// of A: that its tensor core only needs sixteen of the rows is nowhere promised.
void check_reads(Warp& warp, const WgmmaShape& shape, ptx::Descriptor a, ptx::Descriptor b, bool a_in_registers,
                 uintptr_t place) {
  Block& block = current->block;
  for (int lane = 1; lane < warp_lanes; ++lane) {
    if (warp.in[static_cast<size_t>(lane)] == warp.in[0]) continue;
    block.report("not uniform", place, 0, "the operands of wgmma differ between lanes");
    break;
  }
  ++warp.wgmma_clock;
  warp.slowest_generic = current->clocks.generic;
  warp.slowest_async = current->clocks.async;
  if (block.options().races) {
    for_lanes([&warp](Thread& thread) {
      warp.slowest_generic.meet(thread.clocks.generic);
      warp.slowest_async.meet(thread.clocks.async);
    });
  }
  const SharedShadow::Reader reader{actor::wgmma(current->warp), warp.wgmma_clock, warp.slowest_generic,
                                    warp.slowest_async, place};
  const Operand operand_a = operand(a, shape.a_major, 64, shape.element);
  const Operand operand_b = operand(b, shape.b_major, 2 * shape.accumulators, shape.element);
  const auto read = [&](uint32_t address) { block.shadow.async_read(reader, address - shared_window, 16); };
  if (!a_in_registers) {
    check_descriptor(operand_a, "A", place);
    for_segments(operand_a, [&](uint32_t address, int, int) { read(address); });
  }
  check_descriptor(operand_b, "B", place);
  for_segments(operand_b, [&](uint32_t address, int, int) { read(address); });
}

bool is_fenced(const void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  for (const Span& span : current->wgmma.fenced) {
    const auto first = reinterpret_cast<uintptr_t>(span.data);
    if (begin >= first && begin + bytes <= first + span.bytes) return true;
  }
  return false;
}

/// The accumulators of this wgmma, from now on in the hands of the tensor cores.
Accumulators* own_accumulators(void* data, int count, uintptr_t place) {
  WgmmaThread& state = current->wgmma;
  const size_t bytes = static_cast<size_t>(count) * 4;
  for (const auto& known : state.accumulators) {
    if (known->data == data && known->count == count) {
      if (!known->poisoned())
        current->block.report("accumulator touched in flight", place, 0, "written between a wgmma and its wait");
      return known.get();
    }
    if (overlaps(known->data, static_cast<size_t>(known->count) * 4, data, bytes))
      current->block.report("accumulators overlap", place, 0, "with those of a wgmma in flight");
  }
  if (!is_fenced(data, bytes))
    current->block.report("missing wgmma fence", place, 0,
                          "accumulators that no wgmma.fence named since the program last touched them");
  auto owned = std::make_unique<Accumulators>();
  owned->data = static_cast<uint32_t*>(data);
  owned->count = count;
  owned->values.assign(owned->data, owned->data + count);
  owned->poison();
  state.accumulators.push_back(std::move(owned));
  return state.accumulators.back().get();
}

void own_operand(const uint32_t* registers, uint64_t operation, uintptr_t place) {
  if (!is_fenced(registers, 16))
    current->block.report("missing wgmma fence", place, 0,
                          "registers of A that no wgmma.fence named since the program last touched them");
  current->wgmma.operands.push_back(
      {registers, {registers[0], registers[1], registers[2], registers[3]}, operation, place});
}

}  // namespace

bool Accumulators::poisoned() const {
  return std::all_of(data, data + count, [](uint32_t value) { return value == poison_value; });
}
void Accumulators::poison() { std::fill(data, data + count, poison_value); }

void wgmma_fence(const Span* arrays, int count) {
  collective("wgmma.fence", TANDEM_PLACE, {}, [](Warp&) {});
  std::vector<Span>& fenced = current->wgmma.fenced;
  for (int i = 0; i < count; ++i) {
    std::erase_if(fenced,
                  [&](const Span& old) { return overlaps(old.data, old.bytes, arrays[i].data, arrays[i].bytes); });
    fenced.push_back(arrays[i]);
  }
}

void wgmma(const WgmmaShape& shape, void* accumulators, ptx::Descriptor a, const uint32_t* a_registers,
           ptx::Descriptor b, bool accumulate) {
  const uintptr_t place = TANDEM_PLACE;
  Block& block = current->block;
  Warpgroup& warpgroup = own_warpgroup();
  collective("wgmma", place, {a.low, a.high, b.low, b.high, accumulate},
             [&](Warp& warp) { check_reads(warp, shape, a, b, a_registers != nullptr, place); });
  Thread& self = *current;
  const uint64_t number = self.wgmma.issued++;
  if (number - warpgroup.first >= warpgroup.queue.size()) {
    auto fresh = std::make_unique<WgmmaOperation>();
    fresh->shape = shape;
    fresh->a = a;
    fresh->b = b;
    fresh->from_registers = a_registers != nullptr;
    fresh->accumulate = accumulate;
    fresh->place = place;
    warpgroup.queue.push_back(std::move(fresh));
  }
  WgmmaOperation& operation = *warpgroup.queue[number - warpgroup.first];
  if (operation.shape.accumulators != shape.accumulators || operation.b.low != b.low ||
      operation.from_registers != (a_registers != nullptr))
    block.report("divergent collective", place, operation.place, "the warps of a warpgroup issue different wgmmas");
  const auto index = static_cast<size_t>(self.index % warpgroup_threads);
  Accumulators* owned = own_accumulators(accumulators, shape.accumulators, place);
  owned->last_operation = number + 1;
  operation.accumulators[index] = owned;
  if (a_registers) {
    std::copy(a_registers, a_registers + 4, operation.a_registers[index].begin());
    own_operand(a_registers, number + 1, place);
  }
  operation.warp_clock[static_cast<size_t>(self.warp % 4)] = block.warp_at(self.warp).wgmma_clock;
  operation.end = std::max(operation.end, self.time);
  if (++operation.arrived < warpgroup_threads) return;
  ++scheduler().wgmmas;
  if (block.timeline.on())
    operation.end = block.timeline.wgmma(self.index / warpgroup_threads, 2 * shape.accumulators, a_registers != nullptr,
                                         operation.end);
  if (scheduler().random() & 1) run_until(block, warpgroup, number + 1);
  for (int i = 0; i < warpgroup_threads; ++i) {
    Thread& thread = block.thread(self.index / warpgroup_threads * warpgroup_threads + i);
    if (thread.wait.on == Waiting::wgmma) scheduler().wake(thread);
  }
}

void wgmma_commit() { current->wgmma.groups.push_back(current->wgmma.issued); }

namespace {

/// Waits until the thread's operations before `end` are done.
void complete_operations(uint64_t end, uintptr_t place) {
  Thread& self = *current;
  Block& block = self.block;
  Warpgroup& warpgroup = own_warpgroup();
  const double begin = self.time;
  while (end > warpgroup.first && warpgroup.queue[end - 1 - warpgroup.first]->arrived < warpgroup_threads)
    scheduler().suspend(Waiting::wgmma, "wgmma.wait_group", 0, 0, place);
  run_until(block, warpgroup, end);
  for (uint64_t i = std::max(warpgroup.first, self.wgmma.completed); i < end; ++i) {
    const WgmmaOperation& operation = *warpgroup.queue[i - warpgroup.first];
    uint32_t& seen = self.clocks.generic[actor::wgmma(self.warp)];
    seen = std::max(seen, operation.warp_clock[static_cast<size_t>(self.warp % 4)]);
    if (block.timeline.on()) self.time = std::max(self.time, operation.end + 30);
  }
  self.wgmma.completed = end;
  if (block.timeline.on()) block.timeline.waited(self, "wgmma wait", "", begin);
}

/// Forgets operations that every thread of the warpgroup has waited for.
void trim_queue(Warpgroup& warpgroup) {
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < warpgroup_threads; ++i) {
    const int thread = current->index / warpgroup_threads * warpgroup_threads + i;
    least = std::min(least, current->block.thread(thread).wgmma.completed);
  }
  for (; warpgroup.first < least && !warpgroup.queue.empty(); ++warpgroup.first) warpgroup.queue.pop_front();
}

/// Gives operands back whose operation is done; reports those that changed under it.
void return_operands(uintptr_t place) {
  WgmmaThread& state = current->wgmma;
  std::erase_if(state.operands, [&](const OperandRegisters& operand) {
    if (operand.operation > state.completed) return false;
    if (!std::equal(operand.values.begin(), operand.values.end(), operand.data))
      current->block.report("operand changed in flight", place, operand.place,
                            "registers of A changed before the wait for their wgmma");
    return true;
  });
}

/// Gives the named accumulators their values back.
void return_accumulators(const Span* arrays, int count, int groups, uintptr_t place) {
  WgmmaThread& state = current->wgmma;
  std::erase_if(state.accumulators, [&](const std::unique_ptr<Accumulators>& owned) {
    const size_t bytes = static_cast<size_t>(owned->count) * 4;
    const bool named = std::any_of(arrays, arrays + count, [&](const Span& array) {
      return overlaps(array.data, array.bytes, owned->data, bytes);
    });
    if (!named) return false;
    if (owned->last_operation > state.completed) {
      current->block.report("wait names an accumulator still in flight", place, 0, "wgmma.wait_group %d", groups);
      return false;
    }
    if (!owned->poisoned())
      current->block.report("accumulator touched in flight", place, 0, "written between a wgmma and its wait");
    std::memcpy(owned->data, owned->values.data(), bytes);
    return true;
  });
}

}  // namespace

void wgmma_wait(int groups, const Span* arrays, int count) {
  const uintptr_t place = TANDEM_PLACE;
  collective("wgmma.wait_group", place, {}, [](Warp&) {});
  WgmmaThread& state = current->wgmma;
  if (static_cast<int>(state.groups.size()) > groups) {
    const auto last = state.groups.end() - groups - 1;
    const uint64_t end = *last;
    state.groups.erase(state.groups.begin(), last + 1);
    if (end > state.completed) complete_operations(end, place);
  }
  return_operands(place);
  return_accumulators(arrays, count, groups, place);
  trim_queue(own_warpgroup());
}

}  // namespace tandem::emulator
