// How the Hopper backend serves a forward problem: which compiled variant, which schedule, which copies, how much
// workspace. Pure host code, so that every decision can be tested anywhere.
#pragma once

#include "backends/sm90/variants.hpp"
#include "plan/forward_schedule.hpp"

namespace tandem::internal {

struct ForwardPlan : ForwardSchedule {
  const sm90::forward::Variant* variant = nullptr;
  // Tensors that TMA can't take as they lie, and why: copied to the workspace, the output back. Null: taken as it is.
  const char* copy_query = nullptr;
  const char* copy_key = nullptr;
  const char* copy_value = nullptr;
  const char* copy_out = nullptr;
  // Workspace: byte offsets.
  size_t query_at = 0, key_at = 0, value_at = 0, out_at = 0;
};

/// The Status names the feature that no variant serves.
Result<ForwardPlan> plan_forward_sm90(const Attention& attention, const sm90::DeviceTraits& device) noexcept;

std::string describe(const ForwardPlan& plan, const Attention& attention);

}  // namespace tandem::internal
