// The paper's grid: a fixed number of tokens and a fixed hidden size, shared out over sequence lengths and head dims.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/tandem.hpp"

namespace tandem::tools {

struct BenchCase {
  Pass pass = Pass::forward;
  Dtype dtype = Dtype::bf16;
  int64_t head_dim = 128;
  bool causal = false;
  int64_t seqlen = 512, batch = 1, heads = 1;

  std::string name() const;
  /// FA-3 section 4.1: 4 * seqlen^2 * head_dim * heads a sequence, half of it when causal, 2.5 times it backward.
  double flop() const;
};

struct Grid {
  Dtype dtype = Dtype::bf16;
  bool backward = false;
  int64_t tokens = 16384, hidden = 2048;
  std::vector<int64_t> head_dims, lengths;
  std::vector<bool> masks = {false, true};
};

/// Batch is tokens / seqlen and heads are hidden / head_dim, both rounded down and at least 1.
std::vector<BenchCase> cases_of(const Grid& grid);

}  // namespace tandem::tools
