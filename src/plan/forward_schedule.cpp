// Schedules of the Hopper forward kernels.
#include "plan/forward_schedule.hpp"

#include <algorithm>

#include "common/status.hpp"

namespace tandem::internal {
namespace {

/// Heads that are worked on together. Short ones: as many as leave their keys and values in the L2 cache. Long ones:
/// enough tiles to keep the last ones from waiting for each other, even where they exceed the cache. The limits are
/// measured at causal 512 to 16k (docs/performance-log.md).
int64_t section_heads(const Attention& a, int element_bytes, int64_t tiles_per_head) {
  constexpr int64_t budget = 32 << 20, most_heads = 64, long_tiles = 32, section_tiles = 1024;
  const int64_t per_key_head = std::max<int64_t>(1, a.max_key * (a.head_dim + a.value_dim) * element_bytes);
  const int64_t cached = std::min(most_heads, std::max<int64_t>(1, budget / per_key_head) * a.group());
  const int64_t most = tiles_per_head < long_tiles ? cached : std::max<int64_t>(1, section_tiles / tiles_per_head);
  // Even sections: a small last one would end in tiles that wait for each other.
  const int64_t heads = std::max<int64_t>(1, a.batch * a.query_heads), sections = (heads + most - 1) / most;
  return (heads + sections - 1) / sections;
}

}  // namespace

size_t reserve(ForwardSchedule& plan, size_t bytes) {
  const size_t at = plan.workspace_bytes;
  plan.workspace_bytes += (bytes + 255) / 256 * 256;
  return at;
}

void plan_sides(ForwardSchedule& plan, const Attention& a) {
  plan.query_side = {a.packed_query ? 1 : a.batch, a.packed_query ? a.total_query : a.max_query, a.query_heads,
                     a.packed_query};
  // A tensor map can't have a dimension of 0: a ragged one ends any sequence where its length says.
  plan.key_side = {a.packed_key ? 1 : a.batch, a.packed_key ? a.total_key : a.max_key, a.key_heads,
                   a.packed_key || a.used_key || a.max_key == 0};
  plan.empty = a.batch == 0 || a.query_heads == 0 || a.total_query == 0 || a.max_query == 0;
}

Status plan_schedule(ForwardSchedule& plan, const Attention& a, int64_t tile, int element_bytes,
                     const sm90::DeviceTraits& device) {
  const int64_t most = (a.max_query + tile - 1) / tile;
  int64_t tiles = a.batch * most;
  if (a.packed_query) tiles = std::min(tiles, a.total_query / tile + a.batch) + 1;  // 1: rows behind the last sequence
  tiles *= a.query_heads;
  if (tiles >= int64_t{1} << 31 || a.batch * a.query_heads >= int64_t{1} << 31)
    return error(Code::unsupported, "query", "%lld query tiles are too many for one launch; the limit is 2^31",
                 static_cast<long long>(tiles));
  plan.tiles = static_cast<int32_t>(tiles);
  plan.grid = std::min(plan.tiles, device.multiprocessors);
  plan.scan = a.packed_query;
  const int64_t heads = a.batch * a.query_heads;
  plan.order = {static_cast<int32_t>(most), static_cast<int32_t>(heads),
                static_cast<int32_t>(std::min(section_heads(a, element_bytes, most), heads)),
                a.window.right < Window::unlimited && a.window.left >= Window::unlimited};
  const bool uneven = plan.order.longest_first || plan.scan || a.used_key;
  plan.dynamic = uneven && plan.tiles > plan.grid;
  if (plan.dynamic) plan.counter_at = reserve(plan, sizeof(int32_t));
  return {};
}

std::string describe_schedule(const ForwardSchedule& plan) {
  return "\n  schedule    " + std::string(plan.scan ? "at most " : "") + std::to_string(plan.tiles) + " tiles on " +
         std::to_string(plan.grid) + " blocks, " +
         (plan.dynamic ? "handed out by a counter" : "in strides of the grid") +
         (plan.order.longest_first ? ", longest first in sections of " + std::to_string(plan.order.section) + " heads"
                                   : "");
}

}  // namespace tandem::internal
