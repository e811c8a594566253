// What the compiler's instrumentation (-fsanitize=thread) calls at each load and store of a kernel, defined here
// instead of by the sanitizer's library: this is how ordinary memory accesses are seen.
#include <cstring>

#include "backends/emulator/scheduler.hpp"

namespace tandem::emulator {

namespace {

/// Accumulators, operands and fenced arrays are local arrays of the kernel: they lie on the fiber's stack.
void check_stack_access(Thread& self, const uint8_t* data, size_t bytes, bool write, uintptr_t place) {
  WgmmaThread& state = self.wgmma;
  const auto inside = [&](const void* begin, size_t size) {
    return data + bytes > static_cast<const uint8_t*>(begin) && data < static_cast<const uint8_t*>(begin) + size;
  };
  for (const auto& owned : state.accumulators) {
    if (!inside(owned->data, static_cast<size_t>(owned->count) * 4)) continue;
    self.block.report("accumulator touched in flight", place, 0, "%s between a wgmma and its wait",
                      write ? "written" : "read");
  }
  if (write) {
    for (const OperandRegisters& operand : state.operands) {
      if (!inside(operand.data, 16)) continue;
      self.block.report("operand changed in flight", place, operand.place,
                        "write to registers of A before the wait for their wgmma");
    }
  }
  if (!state.fenced.empty())
    std::erase_if(state.fenced, [&](const Span& span) { return inside(span.data, span.bytes); });
}

inline void on_access(const void* pointer, size_t bytes, bool write, uintptr_t place) {
  Thread* const self = current;
  if (!self) return;
  ++self->work;
  Block& block = self->block;
  const auto* data = static_cast<const uint8_t*>(pointer);
  if (static_cast<size_t>(data - block.stacks().begin(self->index)) < Stacks::stack_bytes) {
    if (self->wgmma.accumulators.empty() && self->wgmma.operands.empty() && self->wgmma.fenced.empty()) return;
    check_stack_access(*self, data, bytes, write, place);
    return;
  }
  ++block.scheduler().accesses;
  const auto offset = static_cast<size_t>(data - block.shared());
  constexpr size_t shared_mapping = 256 << 10;
  if (offset < shared_mapping) {
    block.shadow.generic(*self, static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes), write, place);
    block.scheduler().maybe_preempt();
    return;
  }
  if (write) self->wrote_global = true;
  const auto kind = write ? GlobalMemory::Kind::write : GlobalMemory::Kind::read;
  if (!block.run().global.access(*self, reinterpret_cast<uintptr_t>(pointer), bytes, kind, place))
    block.scheduler().stop();
}

}  // namespace

}  // namespace tandem::emulator

#define TANDEM_HOOKS(bytes)                                                                                  \
  void __tsan_read##bytes(void* p) { tandem::emulator::on_access(p, bytes, false, TANDEM_PLACE); }           \
  void __tsan_write##bytes(void* p) { tandem::emulator::on_access(p, bytes, true, TANDEM_PLACE); }           \
  void __tsan_unaligned_read##bytes(void* p) { tandem::emulator::on_access(p, bytes, false, TANDEM_PLACE); } \
  void __tsan_unaligned_write##bytes(void* p) { tandem::emulator::on_access(p, bytes, true, TANDEM_PLACE); } \
  void __tsan_volatile_read##bytes(void* p) { tandem::emulator::on_access(p, bytes, false, TANDEM_PLACE); }  \
  void __tsan_volatile_write##bytes(void* p) { tandem::emulator::on_access(p, bytes, true, TANDEM_PLACE); }

// NOLINTBEGIN(bugprone-reserved-identifier): the names are the compiler's.
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
TANDEM_HOOKS(1)
TANDEM_HOOKS(2)
TANDEM_HOOKS(4)
TANDEM_HOOKS(8)
TANDEM_HOOKS(16)
void __tsan_read_range(void* p, unsigned long bytes) {
  if (bytes) tandem::emulator::on_access(p, bytes, false, TANDEM_PLACE);
}
void __tsan_write_range(void* p, unsigned long bytes) {
  if (bytes) tandem::emulator::on_access(p, bytes, true, TANDEM_PLACE);
}
// clang calls these two in place of the library's.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  __tsan_read_range(const_cast<void*>(from), bytes);
  __tsan_write_range(to, bytes);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  __tsan_write_range(to, bytes);
  return std::memset(to, value, bytes);
}
}
// NOLINTEND(bugprone-reserved-identifier)
