// How the Hopper backend serves an 8-bit forward problem: which compiled variant, the rows of blocks, how often sums
// are promoted. Pure host code, so that every decision can be tested anywhere.
#pragma once

#include "backends/sm90/forward_fp8/variants.hpp"
#include "plan/forward_schedule.hpp"

namespace tandem::internal {

struct ForwardFp8Plan : ForwardSchedule {
  const sm90::forward_fp8::Variant* variant = nullptr;
  int32_t promote_every = 0;  // key blocks between promotions of O to float32; 0: none
};

/// Completes the rows of blocks in `attention`. The Status names the feature that no variant serves.
Result<ForwardFp8Plan> plan_forward_fp8_sm90(Attention& attention, const sm90::DeviceTraits& device) noexcept;

std::string describe(const ForwardFp8Plan& plan, const Attention& attention);

}  // namespace tandem::internal
