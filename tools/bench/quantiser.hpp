// How fast the quantiser is, against a copy of as many bytes by the device in the same run: both are bound by memory.
#pragma once

#include <string>
#include <vector>

#include "tools/memory.hpp"

namespace tandem::tools {

/// One measured plan. Bytes are those that must be moved: 16-bit elements read (twice where a scale or a mean depends
/// on more than a block), 8-bit ones and scales written.
struct QuantiserRow {
  std::string tensor, method;  // "query", "value"; "blocks", "blocks hadamard", ...
  int head_dim = 0;
  int64_t tokens = 0;
  double seconds = 0, spread = 0;
  double bytes = 0, bandwidth = 0;  // bytes per second
  double of_copy = 0;               // of the copy's bandwidth
};

struct QuantiserReport {
  double copy_bandwidth = 0;  // of 400 MB, bytes read and written
  std::vector<QuantiserRow> rows;
};

/// Every method at hidden size 2,048; `samples` of each, of which the median counts.
QuantiserReport measure_quantiser(Memory& memory, int samples);

}  // namespace tandem::tools
