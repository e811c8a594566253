// How the Hopper backend serves a backward problem: which compiled variant, which order of tiles, which copies, how
// much workspace. Pure host code, so that every decision can be tested anywhere.
#pragma once

#include <array>

#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/backward/variants.hpp"
#include "backends/sm90/device.hpp"
#include "backends/sm90/tensor_maps.hpp"
#include "plan/attention.hpp"
#include "plan/forward_schedule.hpp"

namespace tandem::internal {

struct BackwardPlan {
  const sm90::backward::Variant* variant = nullptr;
  const sm90::backward::QueryVariant* query_variant = nullptr;  // of dQ, where a kernel of its own computes it
  ForwardSchedule queries;                                      // its tiles; of its workspace only what it reserves
  sm90::Side query_side, key_side;
  bool no_queries = false, no_keys = false;  // no rows of that side: nothing to launch for them
  bool scan = false;                         // packed keys: tiles are found by walking over the lengths
  TileOrder order{};
  int32_t tiles = 0;     // an upper bound where `scan`
  int32_t grid = 0;      // as many blocks as tiles, or as the device takes at once
  bool upwards = false;  // tiles from the last keys on, see sm90::backward::Params
  bool dynamic = false;  // tiles handed out by an atomic counter, else in strides of the grid
  sm90::backward::QueryBlocks blocks{};

  /// A tensor that the kernels can't take as it lies, and why: copied to the workspace, or from there if it is written.
  struct Copy {
    const char* reason = nullptr;  // null: taken as it is
    size_t at = 0;
  };
  Copy query, key, value, out, grad_out, grad_query, grad_key, grad_value;
  int64_t query_pitch = 0, key_pitch = 0;  // rows from one sequence to the next, ragged and dense

  size_t accumulator_at = 0, statistics_at = 0, flags_at = 0, counter_at = 0;  // in the workspace
  size_t workspace_bytes = 0;
};

/// The Status names the feature that no variant serves.
Result<BackwardPlan> plan_backward_sm90(const Attention& attention, const sm90::DeviceTraits& device) noexcept;

std::string describe(const BackwardPlan& plan, const Attention& attention);

}  // namespace tandem::internal
