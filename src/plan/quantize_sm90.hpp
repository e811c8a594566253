// How the Hopper backend serves a quantiser's problem: which kernels run for each tensor, how its rows are cut into
// blocks, how much workspace they need. Pure host code, so that every decision can be tested anywhere.
#pragma once

#include <array>

#include "backends/sm90/device.hpp"
#include "backends/sm90/quantize/params.hpp"
#include "plan/attention.hpp"

namespace tandem::internal {

struct QuantizePlan {
  /// Blocks of rows, and the launch that takes them.
  struct Pass {
    sm90::backward::QueryBlocks blocks{};
    int threads = 0;
    int at_once = 0;  // rows, or groups of 16 keys, that a block of threads holds in registers
    int parts = 1;    // how often that is, to make a block
    int heads_at_once = 1;
    int64_t grid = 0;  // 0: not launched
  };
  /// What happens to a tensor, in this order.
  struct Operand {
    bool present = false;
    bool groups = false;  // value in groups of 16 keys
    int32_t heads = 0, columns = 0;
    int lanes = 0;                // threads that share a row
    Pass columns_search, search;  // the tensor is read once more: for means; for the scales of heads or of all
    int64_t means_grid = 0, scales_grid = 0;
    Pass quantize;
    size_t columns_at = 0, largest_at = 0;  // in the workspace
  };
  enum { query, key, value };
  std::array<Operand, 3> operands;
  int hadamard = 1;
  size_t workspace_bytes = 0;
};

/// The Status names the feature that isn't served.
Result<QuantizePlan> plan_quantize_sm90(const Attention& attention, const sm90::DeviceTraits& device) noexcept;

std::string describe(const QuantizePlan& plan, const Attention& attention);

}  // namespace tandem::internal
