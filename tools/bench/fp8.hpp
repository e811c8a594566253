// Timing of 8-bit attention: of tensors that are quantised already, of the quantiser, and of both one after the other.
#pragma once

#include "tools/bench/benchmark.hpp"
#include "tools/quantized.hpp"

namespace tandem::tools {

struct Fp8Row {
  BenchCase problem;                          // dtype: what is quantised
  std::optional<double> attention, together;  // TFLOP/s of attention's arithmetic
  double quantiser_seconds = 0, spread = 0;
  std::string note;
};

/// Measures one case on random data that the library quantises.
Fp8Row measure_fp8(Memory& memory, Backend backend, int threads, int samples, const BenchCase& c,
                   const Quantising& how);

}  // namespace tandem::tools
