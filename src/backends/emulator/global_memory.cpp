// Checks of accesses to global memory, by the PTX ISA's "Memory Consistency Model". Blocks are ordered only through
// flags (add_release, load_acquire).
#include "backends/emulator/global_memory.hpp"

#include <algorithm>

#include "backends/emulator/block.hpp"

extern "C" {
// The bounds of this library, from the linker: kernels may read constants that lie in it.
extern const char __ehdr_start[] __attribute__((visibility("hidden")));  // NOLINT(bugprone-reserved-identifier)
extern const char _end[] __attribute__((visibility("hidden")));          // NOLINT(bugprone-reserved-identifier)
}

namespace tandem::emulator {

namespace {

const char* name(GlobalMemory::Kind kind) {
  return kind == GlobalMemory::Kind::read ? "read" : kind == GlobalMemory::Kind::write ? "write" : "atomic addition";
}

}  // namespace

GlobalMemory::GlobalMemory(const LaunchOptions& options, const void* parameters, size_t parameter_bytes)
    : options_(options), parameters_(reinterpret_cast<uintptr_t>(parameters)), parameter_bytes_(parameter_bytes) {
  for (const bool writable : {true, false}) {
    for (size_t i = 0; i < options.buffer_count; ++i) {
      const Buffer& buffer = options.buffers[i];
      if (buffer.bytes && buffer.writable == writable)
        tensors_.push_back({Area(buffer), std::vector<std::unique_ptr<Page>>(buffer.bytes / page_bytes + 2)});
    }
  }
}

GlobalMemory::Cell& GlobalMemory::Tensor::cell(uintptr_t address) {
  const size_t cell = (address - (area.begin() & ~uintptr_t{3})) / 4;
  auto& page = pages[cell / page_cells];
  if (!page) page = std::make_unique<Page>();
  return (*page)[cell % page_cells];
}

GlobalMemory::Tensor* GlobalMemory::find(uintptr_t address, size_t bytes) {
  for (Tensor& tensor : tensors_)
    if (tensor.area.holds(address, bytes)) return &tensor;
  return nullptr;
}

bool GlobalMemory::in_image(uintptr_t address) const {
  return address >= reinterpret_cast<uintptr_t>(__ehdr_start) && address < reinterpret_cast<uintptr_t>(_end);
}

bool GlobalMemory::report_outside(Thread& thread, uintptr_t address, size_t bytes, Kind kind, uintptr_t place) {
  const Area* nearest = nullptr;
  for (const Tensor& tensor : tensors_)
    if (address >= tensor.area.begin() && (!nearest || tensor.area.begin() > nearest->begin())) nearest = &tensor.area;
  std::string where = format("0x%zx", static_cast<size_t>(address));
  if (nearest) {
    const Buffer& buffer = nearest->buffer();
    const size_t offset = address - nearest->begin();
    where = format("%s + %zu (%s %zu bytes)", buffer.name, offset,
                   offset < buffer.bytes ? "not in its elements alone; it spans" : "it has", buffer.bytes);
  }
  thread.block.report("out of bounds", place, 0, "%s of %zu bytes of global memory at %s", name(kind), bytes,
                      where.c_str());
  return false;
}

bool GlobalMemory::access(Thread& thread, uintptr_t address, size_t bytes, Kind kind, uintptr_t place) {
  if (kind == Kind::read && (address - parameters_ < parameter_bytes_ || in_image(address))) return true;
  const auto self = static_cast<uint16_t>(thread.actor());
  return check(thread, address, bytes, {thread.block.index(), self, 0, kind, thread.clocks.generic[self], place});
}

bool GlobalMemory::async_access(Thread& thread, const Copy& copy, uintptr_t address, size_t bytes, Kind kind) {
  return check(
      thread, address, bytes,
      {thread.block.index(), static_cast<uint16_t>(copy.global_actor), 0, kind, copy.global_clock, copy.place});
}

bool GlobalMemory::check(Thread& thread, uintptr_t address, size_t bytes, Access access) {
  if (tensors_.empty()) return true;
  const std::lock_guard lock(mutex_);
  Tensor* tensor = find(address, bytes);
  if (!tensor) return report_outside(thread, address, bytes, access.kind, access.place);
  const Buffer& buffer = tensor->area.buffer();
  if (!buffer.writable) {
    if (access.kind == Kind::read) return true;
    thread.block.report("write to an input", access.place, 0, "%s, which the kernel may only read", buffer.name);
    return false;
  }
  if (!options_.races) return true;
  if (buffer.written) check_written(thread, buffer, address - tensor->area.begin(), bytes, access);
  for (uintptr_t at = address & ~uintptr_t{3}; at < address + bytes; at += 4) {
    const uintptr_t low = std::max(at, address) - at, high = std::min(at + 4, address + bytes) - at;
    access.mask = static_cast<uint8_t>((0xfu >> (4 - (high - low))) << low);
    check_cell(thread, tensor->cell(at), access, at);
  }
  return true;
}

void GlobalMemory::check_written(Thread& thread, const Buffer& buffer, size_t offset, size_t bytes,
                                 const Access& access) {
  uint8_t* const begin = buffer.written + offset;
  if (access.kind != Kind::write) {
    const uint8_t* const missing = std::find(begin, begin + bytes, 0);
    if (missing != begin + bytes)
      thread.block.report("uninitialised", access.place, 0, "%s of %s + %zu, which nothing in this run wrote",
                          name(access.kind), buffer.name, static_cast<size_t>(missing - buffer.written));
  }
  if (access.kind != Kind::read) std::fill(begin, begin + bytes, uint8_t{1});
}

/// PTX ISA, "Conflict and Data-races": two accesses, one of them a write, race unless causality order relates them;
/// atomics are morally strong and don't race with each other ("Morally strong operations"). A copy reads and writes
/// through the asynchronous proxy, which sees ordinary writes only after a proxy fence ("Proxies", "membar/fence").
void GlobalMemory::check_cell(Thread& thread, Cell& cell, const Access& access, uintptr_t address) {
  const bool by_copy = access.actor < actor::copy_slots;
  const auto view = [&](bool async, const Access& other) -> uint32_t {
    if (other.block == thread.block.index())
      return async ? thread.clocks.global_async.get(other.actor) : thread.clocks.generic[other.actor];
    if (!thread.clocks.others) return 0;
    const auto it = thread.clocks.others->find(other.block);
    if (it == thread.clocks.others->end()) return 0;
    return async ? it->second.global_async.get(other.actor) : it->second.generic.get(other.actor);
  };
  for (const Access& other : cell) {
    if (!(other.mask & access.mask)) continue;
    if (other.kind == Kind::read && access.kind == Kind::read) continue;
    if (other.kind == Kind::atomic && access.kind == Kind::atomic) continue;
    if (other.clock > view(false, other)) {
      thread.block.report("race in global memory", access.place, other.place, "%s at 0x%zx, after a %s by block %d",
                          name(access.kind), static_cast<size_t>(address), name(other.kind), other.block);
      break;
    }
    if (by_copy && other.actor >= actor::copy_slots && other.kind != Kind::read && other.clock > view(true, other)) {
      thread.block.report("missing proxy fence", access.place, other.place,
                          "asynchronous %s of global memory, written before with no fence.proxy.async after it",
                          name(access.kind));
      break;
    }
  }
  std::erase_if(cell, [&](Access& other) {
    if (access.kind == Kind::read || (access.kind == Kind::atomic && other.kind == Kind::atomic))
      return other.kind == access.kind && other.block == access.block && other.actor == access.actor &&
             other.mask == access.mask;
    return !(other.mask &= static_cast<uint8_t>(~access.mask));
  });
  cell.push_back(access);
}

/// PTX ISA, "Release and Acquire Patterns": the flag carries all that the thread comes after ("Causality Order").
void GlobalMemory::release(Thread& thread, const void* flag) {
  const std::lock_guard lock(mutex_);
  Clocks::Others& published = flags_[flag];
  Clocks::Views& mine = published[thread.block.index()];
  mine.generic.join(thread.clocks.generic);
  mine.global_async.join(thread.clocks.global_async);
  if (thread.clocks.others) {
    for (const auto& [block, views] : *thread.clocks.others) {
      published[block].generic.join(views.generic);
      published[block].global_async.join(views.global_async);
    }
  }
  ++thread.clocks.generic[thread.actor()];
}

void GlobalMemory::acquire(Thread& thread, const void* flag) {
  const std::lock_guard lock(mutex_);
  const auto it = flags_.find(flag);
  if (it == flags_.end()) return;
  Clocks::Others others = it->second;
  const auto own = others.find(thread.block.index());
  if (own != others.end()) {
    thread.clocks.generic.join(own->second.generic);
    thread.clocks.global_async.join(own->second.global_async);
    others.erase(own);
  }
  if (!others.empty()) thread.clocks.join_others(others);
}

}  // namespace tandem::emulator
