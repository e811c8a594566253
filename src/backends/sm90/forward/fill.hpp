// The parameters that a problem alone decides, the same for 16 and 8 bits: lengths, LSE, mask, schedule.
#pragma once

#include "backends/sm90/forward/params.hpp"
#include "plan/forward_schedule.hpp"

namespace tandem::internal::sm90::forward {

/// `query` and `key` are the tensors as the kernel sees them. Leaves tensor maps and the tile counter alone.
void fill(Params& params, const Attention& attention, const ForwardSchedule& plan, const Arguments& arguments,
          const TensorSpec& query, const TensorSpec& key) noexcept;

}  // namespace tandem::internal::sm90::forward
