// The seeded sweep: problems drawn from the dimensions that go wrong.
#pragma once

#include "cpu/support.hpp"

namespace testing_support {

/// Dtype, dims of 1 to 512, lengths off the tile grid, groups of heads, layouts, packed and used lengths, masks, scale,
/// softcap, sinks and threads, all from one seed. For the backward pass lengths are shorter, and sequences fill their
/// tensors.
Config draw_config(tandem::Pass pass, uint64_t seed);

}  // namespace testing_support
