// Decisions of the Hopper backward.
#include "plan/backward_sm90.hpp"

#include <algorithm>

#include "common/status.hpp"
#include "plan/spec.hpp"

namespace tandem::internal {
namespace {

using sm90::Side;
using sm90::backward::Config;
using sm90::backward::Division;
using sm90::backward::QueryConfig;
using sm90::backward::QueryVariant;
using sm90::backward::Variant;

Status check_supported(const Attention& a) {
  if (a.dtype != Dtype::bf16 && a.dtype != Dtype::fp16)
    return error(Code::unsupported, "query", "the %s backend takes fp16 and bf16, not %s; the cpu backend takes fp32",
                 name(a.backend), name(a.dtype));
  if (a.softcap != 0)
    return error(Code::unsupported, "softcap", "the %s backend has no softcap yet; it must be 0, or the backend cpu",
                 name(a.backend));
  const auto check = [&a](const char* tensor, int64_t dim) -> Status {
    if (dim % 8 == 0 && dim <= 256) return {};
    return error(Code::unsupported, tensor,
                 "the %s backend takes head dims that are multiples of 8 up to 256, not %lld", name(a.backend),
                 static_cast<long long>(dim));
  };
  if (const Status status = check("query", a.head_dim); !status.ok()) return status;
  return check("value", a.value_dim);
}

/// The smallest variant that holds both head dims; what is missing is filled with zeros.
const Variant* choose_variant(const Attention& a) {
  const Variant* best = nullptr;
  for (const Variant& variant : sm90::backward_variants) {
    if (variant.config.dtype != a.dtype || variant.config.head_dim < std::max(a.head_dim, a.value_dim)) continue;
    if (variant.deterministic && !a.options.deterministic) continue;
    const bool same_dim = best != nullptr && variant.config.head_dim == best->config.head_dim;
    if (best == nullptr || variant.config.head_dim < best->config.head_dim || (same_dim && variant.deterministic))
      best = &variant;
  }
  return best;
}

size_t reserve(BackwardPlan& plan, size_t bytes) {
  const size_t at = plan.workspace_bytes;
  plan.workspace_bytes += (bytes + 255) / 256 * 256;
  return at;
}

struct Placing {
  const TensorSpec* spec;
  BackwardPlan::Copy* copy;
};

int64_t pitch_of(const TensorSpec& spec) {
  const Strides s = strides(spec);
  return s.row > 0 ? s.batch / s.row : 0;
}

/// Decides on the copies of one side's tensors and returns their common pitch: one number of rows leads from a sequence
/// to the next in all of them, which only ragged dense tensors need.
int64_t place(BackwardPlan& plan, const Side& side, std::initializer_list<Placing> tensors) {
  const bool dense = side.ragged && side.batch > 1;
  int64_t pitch = pitch_of(*tensors.begin()->spec);
  for (const Placing& tensor : tensors) {
    tensor.copy->reason = sm90::unfit_for_tma(*tensor.spec, side);
    // Copies are row-major, and then all others must have their pitch.
    if (tensor.copy->reason != nullptr || pitch_of(*tensor.spec) != pitch) pitch = side.rows;
  }
  for (const Placing& tensor : tensors) {
    if (dense && tensor.copy->reason == nullptr && pitch_of(*tensor.spec) != pitch)
      tensor.copy->reason =
          "its sequences are further apart than those of its neighbours, which used lengths don't allow";
    if (tensor.copy->reason != nullptr)
      tensor.copy->at = reserve(plan, static_cast<size_t>(elements(*tensor.spec)) * 2);
  }
  return dense ? pitch : 0;
}

bool causal(const Attention& a) { return a.window.right < Window::unlimited && a.window.left >= Window::unlimited; }

/// Heads whose tiles are launched in turn: as many as stay in the L2 cache together with queries, dO and dQ, and at
/// least as many as have tiles for the device. docs/performance-log.md has the measurements.
int64_t section_heads(const Attention& a, const Config& c, int64_t tiles_per_head, int multiprocessors) {
  // Without additions to dQ: few heads at once, so that many blocks read the same queries, but under a causal mask
  // enough for the short tiles at the end.
  if (c.division == Division::gradients)
    return std::max<int64_t>(1, (causal(a) ? 256 : 64) / std::max<int64_t>(1, tiles_per_head));
  int64_t budget = 24 << 20;
  // Long causal sequences at d 128: fewer blocks that add to the same dQ at once are worth more than the cache.
  if (causal(a) && !a.options.deterministic && c.head_dim == 128 && a.max_query * a.group() >= 8192) budget = 96 << 20;
  const int64_t bytes = std::max<int64_t>(1, a.max_query * c.head_dim * (2 + 2 + 4) * a.group());
  return std::max(
      {int64_t{1}, budget / bytes, (multiprocessors + tiles_per_head - 1) / std::max<int64_t>(1, tiles_per_head)});
}

Status plan_tiles(BackwardPlan& plan, const Attention& a, const sm90::DeviceTraits& device) {
  const Config& c = plan.variant->config;
  const int64_t per_head = (a.max_key + c.tile_key() - 1) / c.tile_key(), heads = a.batch * a.key_heads;
  int64_t tiles = a.batch * per_head;
  if (a.packed_key) tiles = a.total_key / c.tile_key() + a.batch + 1;  // 1: rows behind the last sequence
  tiles *= a.key_heads;
  const int64_t of_sequence = (a.max_query + c.tile_query - 1) / c.tile_query;
  const int64_t blocks = a.packed_query ? a.total_query / c.tile_query + a.batch + 1 : a.batch * of_sequence;
  constexpr int64_t most = int64_t{1} << 31;
  if (tiles >= most || heads >= most || blocks * a.query_heads >= most)
    return error(Code::unsupported, "query", "%lld tiles are too many for one launch; the limit is 2^31",
                 static_cast<long long>(std::max(tiles, blocks * a.query_heads)));
  plan.tiles = static_cast<int32_t>(tiles);
  plan.scan = a.packed_key;
  // Blocks take tile after tile, so that they load the next one's keys while they finish the last one.
  plan.grid = std::min(plan.tiles, device.multiprocessors);
  plan.dynamic = plan.grid < plan.tiles && !plan.no_queries;
  plan.blocks = {c.tile_query, static_cast<int32_t>(of_sequence), static_cast<int32_t>(blocks)};
  const int64_t section = section_heads(a, c, per_head, device.multiprocessors);
  // Under a causal mask tiles that start at once come to a query block one step after the other if each begins at its
  // first, so that nobody waits long for his turn; but then the longest are launched last.
  plan.upwards = c.division == Division::keys && a.options.deterministic && causal(a);
  // Tiles of several heads in turn: blocks that add to the same dQ, and wait for each other, don't come by at once.
  // Under a causal mask this is also the longest first.
  plan.order = {static_cast<int32_t>(per_head), static_cast<int32_t>(heads),
                static_cast<int32_t>(std::min(section, std::max<int64_t>(1, heads))), true};
  return {};
}

/// The kernel of dQ alone walks over queries as the forward pass does.
Status plan_queries(BackwardPlan& plan, const Attention& a, const sm90::DeviceTraits& device) {
  for (const QueryVariant& variant : sm90::backward_query_variants)
    if (variant.config.dtype == a.dtype && variant.config.head_dim == plan.variant->config.head_dim)
      plan.query_variant = &variant;
  plan_sides(plan.queries, a);
  return plan_schedule(plan.queries, a, QueryConfig::tile_query(), 2, device);
}

void plan_workspace(BackwardPlan& plan, const Attention& a) {
  plan.query_pitch = place(plan, plan.query_side, {{&a.query, &plan.query}, {&a.grad_out, &plan.grad_out}});
  // O is read, and dQ written unless by TMA, by ordinary accesses of 16 bytes, whose sequences may be anywhere.
  Side plain = plan.query_side;
  plain.ragged = false;
  place(plan, plain, {{&a.out, &plan.out}});
  place(plan, plan.query_variant != nullptr ? plan.queries.query_side : plain, {{&a.grad_query, &plan.grad_query}});
  plan.key_pitch = place(
      plan, plan.key_side,
      {{&a.key, &plan.key}, {&a.value, &plan.value}, {&a.grad_key, &plan.grad_key}, {&a.grad_value, &plan.grad_value}});
  const Config& c = plan.variant->config;
  const auto blocks = static_cast<size_t>(plan.blocks.per_head) * static_cast<size_t>(a.query_heads);
  const auto rows = blocks * static_cast<size_t>(c.tile_query);
  // Never nothing: tensors without rows are mapped to the workspace.
  plan.statistics_at = reserve(plan, std::max<size_t>(1, rows * 2 * sizeof(float)));
  if (plan.dynamic) plan.counter_at = reserve(plan, sizeof(int32_t));
  if (plan.queries.dynamic) plan.queries.counter_at = reserve(plan, sizeof(int32_t));
  if (plan.query_variant != nullptr) return;
  plan.accumulator_at = reserve(plan, rows * static_cast<size_t>(c.head_dim) * sizeof(float));
  plan.flags_at = reserve(plan, blocks * sizeof(int32_t));
}

/// The rows of both sides, as tensor maps see them.
void plan_sides(BackwardPlan& plan, const Attention& a) {
  plan.no_queries = a.batch == 0 || a.query_heads == 0 || a.total_query == 0 || a.max_query == 0;
  plan.no_keys = a.batch == 0 || a.key_heads == 0 || a.total_key == 0 || a.max_key == 0;
  // A tensor map can't have a dimension of 0: a ragged one ends any sequence where its length says.
  plan.query_side = {a.packed_query ? 1 : a.batch, a.packed_query ? a.total_query : a.max_query, a.query_heads,
                     a.packed_query || a.used_query || plan.no_queries};
  plan.key_side = {a.packed_key ? 1 : a.batch, a.packed_key ? a.total_key : a.max_key, a.key_heads,
                   a.packed_key || a.used_key || plan.no_keys};
}

}  // namespace

Result<BackwardPlan> plan_backward_sm90(const Attention& a, const sm90::DeviceTraits& device) noexcept {
  if (const Status status = check_supported(a); !status.ok()) return status;
  BackwardPlan plan;
  plan.variant = choose_variant(a);
  if (plan.variant == nullptr)
    return error(Code::unsupported, "query", "no compiled kernel serves the backward pass of head dims %lld and %lld",
                 static_cast<long long>(a.head_dim), static_cast<long long>(a.value_dim));
  plan_sides(plan, a);
  if (plan.no_queries && plan.no_keys) return plan;
  if (const Status status = plan_tiles(plan, a, device); !status.ok()) return status;
  if (plan.variant->config.division == Division::gradients) {
    if (const Status status = plan_queries(plan, a, device); !status.ok()) return status;
  }
  plan_workspace(plan, a);
  return plan;
}

std::string describe(const BackwardPlan& plan, const Attention& a) {
  const Config& c = plan.variant->config;
  std::string text = std::string("backward on ") + name(a.backend) + ": ";
  if (plan.no_queries && plan.no_keys) return text + "no rows, nothing to launch\n";
  text += plan.variant->name;
  text += "\n  tile        " + std::to_string(c.tile_key()) + " keys, blocks of " + std::to_string(c.tile_query) +
          " queries, " + std::to_string(Config::consumers) + " consumer warpgroups";
  text += "\n  head dims   " + std::to_string(a.head_dim) + " and " + std::to_string(a.value_dim) + " in " +
          std::to_string(c.head_dim);
  text += "\n  schedule    " + std::string(plan.scan ? "at most " : "") + std::to_string(plan.tiles) + " tiles on " +
          std::to_string(plan.grid) + " blocks" + (plan.dynamic ? ", handed out by a counter" : "") +
          (plan.order.longest_first ? ", longest first in sections of " + std::to_string(plan.order.section) + " heads"
                                    : "") +
          (a.options.deterministic && plan.query_variant == nullptr ? ", additions to dQ in a fixed order" : "");
  if (plan.query_variant != nullptr)
    text += std::string("\n  dQ          ") + plan.query_variant->name + ": tiles of " +
            std::to_string(QueryConfig::tile_query()) + " queries, blocks of " + std::to_string(QueryConfig::tile_key) +
            " keys" + describe_schedule(plan.queries);
  text += "\n  shared      " + std::to_string(c.shared_bytes()) + " bytes a block, " + std::to_string(Config::threads) +
          " threads";
  text += "\n  workspace   " + std::to_string(plan.workspace_bytes) + " bytes";
  const auto copy = [&](const char* tensor, const BackwardPlan::Copy& copy) {
    if (copy.reason != nullptr) text += std::string("\n  copy        ") + tensor + ": " + copy.reason;
  };
  copy("query", plan.query);
  copy("key", plan.key);
  copy("value", plan.value);
  copy("out", plan.out);
  copy("grad_out", plan.grad_out);
  copy("grad_query", plan.grad_query);
  copy("grad_key", plan.grad_key);
  copy("grad_value", plan.grad_value);
  return text + "\n";
}

}  // namespace tandem::internal
