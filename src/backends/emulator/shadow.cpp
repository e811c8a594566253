// Checks of accesses to shared memory. The rules are those of the PTX ISA's memory consistency model: ordinary accesses
// must be ordered by barriers, and writes must pass a proxy fence before the asynchronous proxy (TMA, wgmma) reads
// them.
#include "backends/emulator/shadow.hpp"

#include "backends/emulator/block.hpp"

namespace tandem::emulator {

namespace {

std::string actor_name(int who) {
  if (who < actor::copy_slots) return "a TMA copy";
  if (who < actor::thread(0)) return format("wgmma of warp %d", who - actor::wgmma(0));
  const int thread = who - actor::thread(0);
  return format("warp %d lane %d", thread / warp_lanes, thread % warp_lanes);
}

const char* verb(bool write) { return write ? "write to" : "read of"; }

}  // namespace

uintptr_t Place::anchor() {
  static const char here = 0;
  return reinterpret_cast<uintptr_t>(&here);
}

SharedShadow::SharedShadow(Block& block)
    : block_(block), cells_(block.shared_bytes() / 4 + 4), chunks_(block.shared_bytes() / 16 + 1) {}

void SharedShadow::generic(Thread& thread, uint32_t offset, uint32_t bytes, bool write, uintptr_t place) {
  if (static_cast<size_t>(offset) + bytes > block_.shared_bytes()) {
    block_.report("out of bounds", place, 0, "%s %u bytes at %s; the launch gives %zu bytes of shared memory",
                  verb(write), bytes, block_.name_of(offset).c_str(), block_.shared_bytes());
    return;
  }
  if (!block_.options().races) return;
  for (uint32_t i = offset / 16; i <= (offset + bytes - 1) / 16; ++i)
    check_chunk(thread, chunks_[i], std::max(offset, i * 16), write, place);
  for (uint32_t i = offset / 4; i <= (offset + bytes - 1) / 4; ++i) {
    const uint32_t low = std::max(offset, i * 4) - i * 4, high = std::min(offset + bytes, i * 4 + 4) - i * 4;
    const auto mask = static_cast<uint8_t>((0xfu >> (4 - (high - low))) << low);
    if (write) {
      write_cell(thread, cells_[i], mask, i * 4 + low, place);
    } else {
      read_cell(thread, cells_[i], mask, i * 4 + low, place);
    }
  }
}

void SharedShadow::check_chunk(const Thread& thread, Chunk& chunk, uint32_t offset, bool write, uintptr_t place) {
  const VectorClock& generic = thread.clocks.generic;
  if (chunk.load_clock > generic[chunk.load_actor])
    block_.report(write ? "race" : "use before completion", place, chunk.load_place,
                  "%s %s, which a TMA load still owns", verb(write), block_.name_of(offset).c_str());
  chunk.ordinary = true;
  if (!write) return;
  if (chunk.store_clock > generic[chunk.store_actor])
    block_.report("overwrite while in use", place, chunk.store_place, "write to %s, which a TMA store still reads",
                  block_.name_of(offset).c_str());
  check_wgmma_reads(generic, chunk, offset, "write to", place);
}

void SharedShadow::check_wgmma_reads(const VectorClock& generic, const Chunk& chunk, uint32_t offset, const char* what,
                                     uintptr_t place) {
  if (!chunk.wgmma_reads) return;
  for (int warp = 0; warp < block_.warps(); ++warp) {
    if (chunk.wgmma_clock[static_cast<size_t>(warp)] <= generic[actor::wgmma(warp)]) continue;
    block_.report("overwrite while in use", place, chunk.wgmma_place, "%s %s, which a wgmma of warp %d may still read",
                  what, block_.name_of(offset).c_str(), warp);
    return;
  }
}

void SharedShadow::read_cell(Thread& thread, Cell& cell, uint8_t mask, uint32_t offset, uintptr_t place) {
  const VectorClock& generic = thread.clocks.generic;
  for (int i = 0; i < cell.writes; ++i) {
    const Access& write = cell.write[static_cast<size_t>(i)];
    if (write.mask & mask && write.clock > generic[write.actor])
      block_.report("race", place, write.place, "read of %s races with a write by %s", block_.name_of(offset).c_str(),
                    actor_name(write.actor).c_str());
  }
  if (mask & ~cell.initialised)
    block_.report("uninitialised", place, 0, "read of %s, which nobody wrote", block_.name_of(offset).c_str());
  const auto self = static_cast<uint16_t>(thread.actor());
  for (Access& read : cell.reads) {
    if (read.actor == self && read.mask == mask) {
      read.clock = generic[self];
      return;
    }
  }
  cell.reads.push_back({self, mask, generic[self], place});
}

void SharedShadow::write_cell(Thread& thread, Cell& cell, uint8_t mask, uint32_t offset, uintptr_t place) {
  const VectorClock& generic = thread.clocks.generic;
  const auto conflict = [&](const Access& access, const char* what) {
    if (!(access.mask & mask) || access.clock <= generic[access.actor]) return false;
    block_.report("race", place, access.place, "write to %s races with a %s by %s", block_.name_of(offset).c_str(),
                  what, actor_name(access.actor).c_str());
    return true;
  };
  int kept = 0;
  for (int i = 0; i < cell.writes; ++i) {
    Access& write = cell.write[static_cast<size_t>(i)];
    conflict(write, "write");
    if (write.mask &= static_cast<uint8_t>(~mask)) cell.write[static_cast<size_t>(kept++)] = write;
  }
  for (const Access& read : cell.reads)
    if (conflict(read, "read")) break;
  std::erase_if(cell.reads, [mask](Access& read) { return !(read.mask &= static_cast<uint8_t>(~mask)); });
  const auto self = static_cast<uint16_t>(thread.actor());
  cell.write[static_cast<size_t>(kept++)] = {self, mask, generic[self], place};
  cell.writes = static_cast<uint8_t>(kept);
  cell.initialised |= mask;
}

void SharedShadow::async_read(const Reader& reader, uint32_t offset, uint32_t bytes) {
  const bool wgmma = reader.actor >= actor::copy_slots;
  if (static_cast<size_t>(offset) + bytes > block_.shared_bytes()) {
    block_.report("out of bounds", reader.place, 0, "%s reads %s, beyond the shared memory of the launch",
                  wgmma ? "wgmma" : "TMA store", block_.name_of(offset).c_str());
    return;
  }
  if (!block_.options().races) return;
  for (uint32_t i = offset / 16; i < (offset + bytes + 15) / 16; ++i) {
    Chunk& chunk = chunks_[i];
    if (chunk.load_clock > reader.generic[chunk.load_actor])
      block_.report("use before completion", reader.place, chunk.load_place, "%s reads %s, which a TMA load still owns",
                    wgmma ? "wgmma" : "TMA store", block_.name_of(i * 16).c_str());
    if (wgmma) {
      chunk.wgmma_clock[static_cast<size_t>(reader.actor - actor::wgmma(0))] = reader.clock;
      chunk.wgmma_reads = true;
      chunk.wgmma_place = reader.place;
    } else {
      chunk.store_clock = reader.clock;
      chunk.store_actor = static_cast<uint16_t>(reader.actor);
      chunk.store_place = reader.place;
    }
    if (chunk.load_clock && !chunk.ordinary) continue;  // nobody but a copy wrote here
    for (uint32_t k = i * 4; k < i * 4 + 4; ++k)
      if (!check_async_cell(reader, cells_[k], chunk.load_clock != 0, k * 4)) break;
  }
}

bool SharedShadow::check_async_cell(const Reader& reader, const Cell& cell, bool loaded, uint32_t offset) {
  for (int i = 0; i < cell.writes; ++i) {
    const Access& write = cell.write[static_cast<size_t>(i)];
    if (write.clock <= reader.async[write.actor]) continue;
    const bool race = write.clock > reader.generic[write.actor];
    block_.report(race ? "race" : "missing proxy fence", reader.place, write.place,
                  race ? "asynchronous read of %s races with a write by %s"
                       : "asynchronous read of %s, written by %s with no fence.proxy.async after it",
                  block_.name_of(offset).c_str(), actor_name(write.actor).c_str());
    return false;
  }
  if (cell.initialised != 0xf && !loaded) {
    block_.report("uninitialised", reader.place, 0, "asynchronous read of %s, which nobody wrote",
                  block_.name_of(offset).c_str());
    return false;
  }
  return true;
}

void SharedShadow::async_write(Thread& issuer, int actor, uint32_t clock, uint32_t offset, uint32_t bytes,
                               uintptr_t place) {
  if (!block_.options().races) return;
  const VectorClock &generic = issuer.clocks.generic, &async = issuer.clocks.async;
  for (uint32_t i = offset / 16; i < (offset + bytes) / 16; ++i) {
    Chunk& chunk = chunks_[i];
    const auto name = [&] { return block_.name_of(i * 16); };
    if (chunk.load_clock > generic[chunk.load_actor])
      block_.report("race", place, chunk.load_place, "two TMA loads own %s", name().c_str());
    if (chunk.store_clock > generic[chunk.store_actor])
      block_.report("overwrite while in use", place, chunk.store_place,
                    "TMA load into %s, which a TMA store still reads", name().c_str());
    check_wgmma_reads(generic, chunk, i * 16, "TMA load into", place);
    for (uint32_t k = i * 4; k < i * 4 + 4 && (chunk.ordinary || !chunk.load_clock); ++k) {
      Cell& cell = cells_[k];
      for (int w = 0; w < cell.writes; ++w) {
        const Access& write = cell.write[static_cast<size_t>(w)];
        if (write.clock <= async[write.actor]) continue;
        block_.report(write.clock > generic[write.actor] ? "race" : "missing proxy fence", place, write.place,
                      "TMA load into %s after a write by %s", name().c_str(), actor_name(write.actor).c_str());
        break;
      }
      for (const Access& read : cell.reads) {
        if (read.clock <= generic[read.actor]) continue;
        block_.report("overwrite while in use", place, read.place, "TMA load into %s, which %s may still read",
                      name().c_str(), actor_name(read.actor).c_str());
        break;
      }
      cell.writes = 0;
      cell.reads.clear();
      cell.initialised = 0xf;
    }
    chunk = Chunk{};
    chunk.load_actor = static_cast<uint16_t>(actor);
    chunk.load_clock = clock;
    chunk.load_place = place;
  }
}

bool SharedShadow::written_before(const Thread& thread, uint32_t offset, bool async, uintptr_t* writer) const {
  const Cell& cell = cells_[offset / 4];
  if (!block_.options().races || !cell.writes) return true;
  const Access& write = cell.write[0];
  *writer = write.place;
  return write.clock <= (async ? thread.clocks.async : thread.clocks.generic)[write.actor];
}

}  // namespace tandem::emulator
