// Which tiles a Hopper forward kernel works on, in which order and on how many blocks; the same for 16 and 8 bits.
#pragma once

#include "backends/sm90/device.hpp"
#include "backends/sm90/forward/params.hpp"
#include "backends/sm90/tensor_maps.hpp"
#include "plan/attention.hpp"

namespace tandem::internal {

struct ForwardSchedule {
  sm90::Side query_side, key_side;
  bool scan = false;     // sequences of different lengths: tiles are found by walking over them
  bool dynamic = false;  // tiles handed out by an atomic counter, else in strides of the grid
  bool empty = false;    // there is no output row: nothing to launch
  TileOrder order{};
  int32_t tiles = 0;  // an upper bound where `scan`
  int32_t grid = 0;
  size_t counter_at = 0;  // byte offset in the workspace
  size_t workspace_bytes = 0;
};

/// Bytes at the end of the workspace, 256-byte aligned: their offset.
size_t reserve(ForwardSchedule& plan, size_t bytes);

/// Both sides of the problem, and whether there is anything to launch.
void plan_sides(ForwardSchedule& plan, const Attention& attention);

/// Tiles of so many query rows, keys and values of elements of so many bytes. After plan_sides().
Status plan_schedule(ForwardSchedule& plan, const Attention& attention, int64_t tile, int element_bytes,
                     const sm90::DeviceTraits& device);

/// A line of a plan's description.
std::string describe_schedule(const ForwardSchedule& plan);

}  // namespace tandem::internal
