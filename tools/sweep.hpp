// A seeded sweep over what attention can be asked for, each case judged by the oracle: behind `tandem verify`, the GPU
// tests and the emulator's tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/job.hpp"
#include "tools/quantized.hpp"

namespace tandem::tools {

struct SweepOptions {
  Backend backend = Backend::cpu;
  bool backward = false;
  bool fp8 = false;
  bool quick = false;
  uint64_t seed = 1;
  int64_t count = 0;               // cases; 0: what suits the backend
  std::vector<int64_t> head_dims;  // empty: all that suit the backend
};

struct SweepCase {
  size_t number = 0;
  uint64_t seed = 1;
  Pass pass = Pass::forward;
  Dtype dtype = Dtype::bf16;
  int64_t batch = 1, queries = 1, keys = 1;  // the longest lengths where `packed` or `used`
  int64_t query_heads = 1, key_heads = 1, head_dim = 64, value_dim = 64;
  Mask mask;
  std::optional<float> scale;
  float softcap = 0;
  bool sinks = false, packed = false, used = false;
  Layout layout = Layout::row_major;
  std::optional<Quantising> quantising;  // 8 bits; dtype is what is quantised
  bool rising = false;                   // keys grow along the sequence, so that the largest score comes late
  bool shifted = false;                  // values have a mean

  /// "17 bf16 d96 b2 q129 k300 h6/2 causal packed": all that one needs to find it again.
  std::string name() const;
};

std::vector<SweepCase> sweep_cases(const SweepOptions& options);

/// The 16-bit tensors of a case: random inputs with NaN in every gap and beyond every used length, outputs all NaN.
Job make_job(const SweepCase& c);

struct Outcome {
  enum class Kind { passed, failed, skipped };
  Kind kind = Kind::passed;
  std::string text;  // what is wrong, or which feature the backend refused
};

/// Plans, runs twice (the forward must repeat bit for bit), checks guard words and judges. Throws only for faults of
/// the machine, such as memory that runs out.
Outcome run_case(const SweepCase& c, Backend backend, Memory& memory);

}  // namespace tandem::tools
