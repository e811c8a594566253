// Accuracy of 8-bit attention: the error of each method against float64 attention of the unrounded numbers, on the
// paper's distribution (FA-3 section 4.3), on real tensors, and as the number of keys grows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/quantized.hpp"

namespace tandem::tools {

/// A way to compute attention; without `how` in fp16.
struct Method {
  const char* name;
  const char* meaning;
  std::optional<Quantising> how;
};
std::vector<Method> methods();

struct AccuracyOptions {
  Backend backend = Backend::automatic;
  int64_t keys = 4096, heads = 4, head_dim = 128;
  /// Of a head that are compared, at most. A few rows that one key takes carry most of the error, so that a sample of
  /// hundreds is off by several percent.
  int64_t rows = 1048576;
  int seeds = 5;
  std::vector<int64_t> lengths;  // of the study of many keys
  std::string input, layer;      // real tensors
};

struct AccuracyRow {
  std::string data, method;  // data: "paper" or "real"
  double rmse = 0;           // of "paper" the mean over seeds
  std::string note;          // why it couldn't be measured
};

/// One point of the study of many keys. `relative` is the RMSE over the result's own root mean square, which the
/// rounding of values dominates; `drift` how much too small the result is as a whole, in which such rounding cancels
/// out.
struct LengthRow {
  int64_t keys = 0;
  double value_mean = 0;
  std::string method;
  double rmse = 0, relative = 0, drift = 0;
  std::string note;
};

std::vector<AccuracyRow> measure_paper(const AccuracyOptions& options, Memory& memory);
std::vector<AccuracyRow> measure_real(const AccuracyOptions& options, Memory& memory);
std::vector<LengthRow> measure_lengths(const AccuracyOptions& options, Memory& memory);

}  // namespace tandem::tools
