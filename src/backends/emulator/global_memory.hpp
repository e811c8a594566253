// Global memory during a launch: which tensors a kernel may touch, races between threads and blocks, the order that
// flags bring, and reads of what nobody wrote.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/emulator/area.hpp"
#include "backends/emulator/clocks.hpp"
#include "backends/emulator/interface.hpp"
#include "backends/emulator/shadow.hpp"

namespace tandem::emulator {

struct Copy;
struct Thread;

class GlobalMemory {
 public:
  enum class Kind : uint8_t { read, write, atomic };

  GlobalMemory(const LaunchOptions& options, const void* parameters, size_t parameter_bytes);

  /// An ordinary access. False if it is outside of every buffer (reported): it must not be carried out.
  bool access(Thread& thread, uintptr_t address, size_t bytes, Kind kind, uintptr_t place);
  /// An access by a copy of `thread`, checked when it is issued. False as above.
  bool async_access(Thread& thread, const Copy& copy, uintptr_t address, size_t bytes, Kind kind);

  /// The thread releases what it comes after, for those who acquire the flag (PTX ISA, "Release and Acquire Patterns").
  void release(Thread& thread, const void* flag);
  void acquire(Thread& thread, const void* flag);

 private:
  struct Access {
    int block;
    uint16_t actor;
    uint8_t mask;
    Kind kind;
    uint32_t clock;
    Place place;
  };
  using Cell = std::vector<Access>;  // four bytes: the last write, and the reads since
  static constexpr size_t page_cells = 256, page_bytes = 4 * page_cells;
  using Page = std::array<Cell, page_cells>;
  struct Tensor {
    Area area;
    std::vector<std::unique_ptr<Page>> pages;
    Cell& cell(uintptr_t address);
  };

  bool check(Thread& thread, uintptr_t address, size_t bytes, Access access);
  Tensor* find(uintptr_t address, size_t bytes);
  bool in_image(uintptr_t address) const;
  bool report_outside(Thread& thread, uintptr_t address, size_t bytes, Kind kind, uintptr_t place);
  static void check_written(Thread& thread, const Buffer& buffer, size_t offset, size_t bytes, const Access& access);
  void check_cell(Thread& thread, Cell& cell, const Access& access, uintptr_t address);

  const LaunchOptions& options_;
  uintptr_t parameters_;
  size_t parameter_bytes_;
  std::vector<Tensor> tensors_;  // writable ones first: they are found first where memory belongs to two
  std::map<const void*, Clocks::Others> flags_;
  std::mutex mutex_;
};

}  // namespace tandem::emulator
