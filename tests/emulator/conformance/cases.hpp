// The conformance cases: which kernel runs on which input. Plain C++, shared by the program that runs them on a GPU and
// by the test that runs them in the emulator, so that both see the same bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/emulator/interface.hpp"

namespace tandem::conformance {

/// How an output is compared with the GPU's.
enum class Compare {
  exact,       // bit for bit
  approximate  // float32, within two units of the last place or 2^-22 (PTX ISA, "lg2.approx")
};

struct Case {
  std::string name;
  std::string kernel;
  int grid = 1;
  int threads = 128;
  int shared_bytes = 0;
  std::vector<uint8_t> input;
  std::vector<uint8_t> output;  // its content before the run
  std::optional<emulator::TensorMapRequest> map;
  bool map_of_output = false;  // else of the input
  size_t map_offset = 0;       // bytes from the buffer's begin to the map's base
  int32_t argument[12] = {};
  Compare compare = Compare::exact;
};

std::vector<Case> all_cases();

/// FNV-1a over the bytes: what is recorded of large outputs that must agree bit for bit.
uint64_t hash(const std::vector<uint8_t>& bytes);

}  // namespace tandem::conformance
