// Fibers (Boost.Context) and their stacks. A fiber is one thread of an emulated block.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tandem::emulator {

/// Stacks for the fibers of one block, each with a guard page below it; pages are touched only when used. Kept from one
/// block to the next.
class Stacks {
 public:
  static constexpr size_t stack_bytes = 128 << 10;

  explicit Stacks(int count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// The low end of a stack, guard page included.
  uint8_t* begin(int index) const { return base_ + stack_bytes * static_cast<size_t>(index); }
  boost::context::stack_context context(int index) const;

 private:
  uint8_t* base_;
  size_t bytes_;
};

/// Gives a fiber a stack that isn't its own to free.
struct BorrowedStack {
  boost::context::stack_context context;
  boost::context::stack_context allocate() const { return context; }
  void deallocate(boost::context::stack_context&) const {}
};

}  // namespace tandem::emulator
