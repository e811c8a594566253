// Copies of the TMA unit in flight, and the emulator's own content of a ptx::TensorMap.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/emulator/interface.hpp"

namespace tandem::emulator {

struct MBarrier;
struct Thread;

/// What the emulator keeps in the 128 bytes of a tensor map. Strides are taken modulo 2^64, as by the hardware.
struct EncodedMap {
  static constexpr uint64_t valid = 0x74656e736f726d70;  // "tensormp"
  uint64_t magic;
  uint64_t base;
  uint64_t stride[4];
  uint32_t size_minus_1[5];
  uint16_t box[5];
  uint8_t rank, element_bytes, swizzle;
  bool float32;

  int box_bytes() const {
    int bytes = element_bytes;
    for (int i = 0; i < rank; ++i) bytes *= box[i];
    return bytes;
  }
};
static_assert(sizeof(EncodedMap) <= sizeof(ptx::TensorMap));

bool encode(const TensorMapRequest& request, ptx::TensorMap* map, char* error, size_t error_bytes);

struct Copy {
  enum class Kind { load, store, add };
  Kind kind = Kind::load;
  bool tensor = false;  // else contiguous bytes
  EncodedMap map{};
  int coordinates[5] = {};
  uint64_t global = 0;
  uint32_t shared = 0;  // offset
  int bytes = 0;
  MBarrier* barrier = nullptr;  // of a load
  Thread* issuer = nullptr;
  // Its two ends are actors of their own: bulk_wait_read covers only the shared end of a store.
  int shared_actor = 0, global_actor = 0;
  uint32_t shared_clock = 0, global_clock = 0;
  uintptr_t place = 0;
  double due = 0;
  bool done = false;
};

/// The bulk groups of a thread (PTX ISA, "bulk async-group"), in order. Copies are indices into Block::copies.
struct BulkGroups {
  struct Group {
    std::vector<int> copies;
    bool read = false;  // waited for with bulk_wait_read
  };
  std::vector<int> open;
  std::vector<Group> committed;  // those not waited for with bulk_wait
};

}  // namespace tandem::emulator
