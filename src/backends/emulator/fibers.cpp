// Stacks for fibers: one mapping, without reserving memory.
#include "backends/emulator/fibers.hpp"

#include <sys/mman.h>

#include <new>

namespace tandem::emulator {

namespace {
constexpr size_t guard_bytes = 4096;
}

Stacks::Stacks(int count) : bytes_(stack_bytes * static_cast<size_t>(count)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<uint8_t*>(memory);
  for (int i = 0; i < count; ++i) mprotect(begin(i), guard_bytes, PROT_NONE);
}

Stacks::~Stacks() { munmap(base_, bytes_); }

boost::context::stack_context Stacks::context(int index) const {
  boost::context::stack_context context;
  context.size = stack_bytes - guard_bytes;
  context.sp = begin(index) + stack_bytes;
  return context;
}

}  // namespace tandem::emulator
