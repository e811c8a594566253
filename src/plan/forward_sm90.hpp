// How the Hopper backend serves a forward problem: which compiled variant, which schedule, which copies, how much
// workspace. Pure host code, so that every decision can be tested anywhere.
#pragma once

#include "backends/sm90/device.hpp"
#include "backends/sm90/forward/params.hpp"
#include "backends/sm90/tensor_maps.hpp"
#include "backends/sm90/variants.hpp"
#include "plan/attention.hpp"

namespace tandem::internal {

struct ForwardPlan {
  const sm90::forward::Variant* variant = nullptr;
  sm90::Side query_side, key_side;
  bool scan = false;     // sequences of different lengths: tiles are found by walking over them
  bool dynamic = false;  // tiles handed out by an atomic counter, else in strides of the grid
  bool empty = false;    // there is no output row: nothing to launch
  TileOrder order{};
  int32_t tiles = 0;  // an upper bound where `scan`
  int32_t grid = 0;
  // Tensors that TMA can't take as they lie, and why: copied to the workspace, the output back. Null: taken as it is.
  const char* copy_query = nullptr;
  const char* copy_key = nullptr;
  const char* copy_value = nullptr;
  const char* copy_out = nullptr;
  // Workspace: byte offsets.
  size_t counter_at = 0, query_at = 0, key_at = 0, value_at = 0, out_at = 0;
  size_t workspace_bytes = 0;
};

/// The Status names the feature that no variant serves.
Result<ForwardPlan> plan_forward_sm90(const Attention& attention, const sm90::DeviceTraits& device) noexcept;

std::string describe(const ForwardPlan& plan, const Attention& attention);

}  // namespace tandem::internal
