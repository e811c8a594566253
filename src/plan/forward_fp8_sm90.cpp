// Decisions of the Hopper 8-bit forward.
#include "plan/forward_fp8_sm90.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "common/quantized.hpp"
#include "common/status.hpp"
#include "plan/scales.hpp"

namespace tandem::internal {
namespace {

using sm90::forward_fp8::Config;
using sm90::forward_fp8::Variant;

/// Keys that the tensor cores may add up before their sum is promoted; a row's last sum may have a tile more. They
/// truncate: with values of a mean of one sigma 512 keys leave an error of 0.5%, 768 of 0.7% (640 are whole tiles of 64
/// and of 128); once the mean is taken out 16,384 leave 0.6%, and 131,072 1.2% (docs/performance-log.md).
int64_t keys_before_promotion(const Quantization& q) { return q.value_mean ? 16384 : 640; }

/// Whether any sum is long enough to be promoted. Where the variant must not depend on lengths, it could be.
bool needs_promotion(const Attention& a) {
  return a.quantization.promote && (a.options.batch_invariant || a.max_key > keys_before_promotion(a.quantization));
}

Status check_supported(const Attention& a) {
  if (a.softcap != 0)
    return error(Code::unsupported, "softcap", "the %s backend has no softcap yet; it must be 0, or the backend cpu",
                 name(a.backend));
  if (a.head_dim > 256 || a.value_dim > 256)
    return error(Code::unsupported, a.head_dim > 256 ? "query" : "value",
                 "the %s backend takes head dims up to 256, not %lld", name(a.backend),
                 static_cast<long long>(std::max(a.head_dim, a.value_dim)));
  // The kernels find a tile's scales by quotient(), common/quantized.hpp.
  constexpr int64_t most_rows = int64_t{quotient_limit} * 32;
  const int64_t queries = a.packed_query ? a.total_query : a.max_query, keys = a.packed_key ? a.total_key : a.max_key;
  if (queries > most_rows || keys > most_rows)
    return error(Code::unsupported, queries > most_rows ? "query" : "key",
                 "the %s backend takes 8-bit tensors of at most %lld rows, not %lld", name(a.backend),
                 static_cast<long long>(most_rows), static_cast<long long>(std::max(queries, keys)));
  if (a.query_heads > quotient_limit)
    return error(Code::unsupported, "query", "the %s backend takes at most %d heads of 8 bits, not %lld",
                 name(a.backend), quotient_limit, static_cast<long long>(a.query_heads));
  if (a.value_dim % 8 != 0)
    return error(Code::unsupported, "value", "the %s backend takes value dims that are multiples of 8, not %lld",
                 name(a.backend), static_cast<long long>(a.value_dim));
  return {};
}

/// 8-bit tensors are read where they lie.
Status check_strides(const ForwardSchedule& plan, const Attention& a) {
  const auto check = [](const char* name, const TensorSpec& spec, const sm90::Side& side) {
    const char* reason = sm90::unfit_for_tma(spec, side);
    return reason == nullptr ? Status{}
                             : error(Code::unsupported, name,
                                     "%s can't be read or written by the 8-bit kernels as it lies: %s; strides must be "
                                     "multiples of 16 bytes (head dims too, where it is contiguous)",
                                     name, reason);
  };
  if (Status status = check("query", a.query, plan.query_side); !status.ok()) return status;
  if (Status status = check("key", a.key, plan.key_side); !status.ok()) return status;
  if (Status status = check("out", a.out, plan.query_side); !status.ok()) return status;
  if (a.quantization.value_layout == ValueLayout::rows) return check("value", a.value, plan.key_side);
  for (int i = 0; i + 2 < a.value.rank; ++i) {
    const auto at = static_cast<size_t>(i);
    if (a.value.size[at] > 1 && (a.value.stride[at] <= 0 || a.value.stride[at] % 16 != 0))
      return error(Code::unsupported, "value", "stride[%d] of value is %lld; packed, it must be a multiple of 16", i,
                   static_cast<long long>(a.value.stride[at]));
  }
  if (a.value.alignment < 16)
    return error(Code::unsupported, "value", "value has an alignment of %d bytes; the 8-bit kernels need 16",
                 a.value.alignment);
  return {};
}

bool serves(const Variant& variant, const Attention& a) {
  const Config& c = variant.config;
  const Quantization& q = a.quantization;
  const auto divides = [&](Granularity granularity, int rows) {
    return granularity != Granularity::block || rows % c.tile_key == 0;
  };
  return c.dtype == a.dtype && c.value_layout == q.value_layout && c.head_dim >= a.head_dim &&
         c.head_dim >= a.value_dim && (c.promotes || !needs_promotion(a)) && divides(q.key, q.key_rows) &&
         divides(q.value, q.value_rows);
}

/// Of the variants that serve the one with the smallest head dim; of those the one for the longest sequences that these
/// reach, or for the shortest that they don't; of those the one with the largest tile.
const Variant* choose_variant(const Attention& a) {
  const int64_t keys = a.options.batch_invariant ? 0 : a.max_key;
  const auto reached = [&](const Variant& v) { return v.from_keys <= keys ? v.from_keys : -v.from_keys; };
  const Variant* best = nullptr;
  for (const Variant& variant : sm90::forward_fp8_variants) {
    if (!serves(variant, a)) continue;
    const auto better = [&](const Variant& x, const Variant& y) {
      if (x.config.head_dim != y.config.head_dim) return x.config.head_dim < y.config.head_dim;
      if (x.from_keys != y.from_keys) return reached(x) > reached(y);
      return x.config.tile_key > y.config.tile_key;
    };
    if (best == nullptr || better(variant, *best)) best = &variant;
  }
  return best;
}

/// The rows of blocks at fault, if the plan's own choice could be served.
Status unfit_rows(const Attention& a) {
  const auto served = [&](int key_rows, int value_rows) {
    Attention other = a;
    other.quantization.key_rows = key_rows;
    other.quantization.value_rows = value_rows;
    std::string tiles;
    for (const Variant& variant : sm90::forward_fp8_variants) {
      const std::string tile = std::to_string(variant.config.tile_key);
      if (!serves(variant, other) || (", " + tiles + ",").find(" " + tile + ",") != std::string::npos) continue;
      tiles += (tiles.empty() ? "" : ", ") + tile;
    }
    return tiles;
  };
  const Quantization& q = a.quantization;
  const std::string tiles = served(0, 0);
  if (tiles.empty()) return {};
  const bool of_key = q.key_rows != 0 && served(q.key_rows, 0).empty();
  const char* name = of_key ? "quantization.key_rows" : "quantization.value_rows";
  return error(
      Code::unsupported, name,
      "%s is %d; for this problem the %s backend takes multiples of the key tile of a kernel, the same for key "
      "and value: %s (leave it 0 and ask Plan::quantization())",
      name, of_key ? q.key_rows : q.value_rows, tandem::name(a.backend), tiles.c_str());
}

Status no_variant(const Attention& a) {
  if (const Status status = unfit_rows(a); !status.ok()) return status;
  const Quantization& q = a.quantization;
  return error(Code::unsupported, "quantization",
               "no compiled 8-bit kernel serves %s queries of head dim %lld with %s values of dim %lld in blocks of %d "
               "and %d rows (0: the plan's choice)%s",
               name(a.dtype), static_cast<long long>(a.head_dim),
               q.value_layout == ValueLayout::packed ? "packed" : "plain", static_cast<long long>(a.value_dim),
               q.key_rows, q.value_rows, needs_promotion(a) ? " with promotion" : "");
}

}  // namespace

Result<ForwardFp8Plan> plan_forward_fp8_sm90(Attention& a, const sm90::DeviceTraits& device) noexcept {
  if (const Status status = check_supported(a); !status.ok()) return status;
  ForwardFp8Plan plan;
  plan.variant = choose_variant(a);
  if (plan.variant == nullptr) return no_variant(a);
  const Config& c = plan.variant->config;
  // Queries: a consumer's 64 rows must see one scale; twice as many cost less to store and to find.
  if (const Status status = choose_blocks(a, {64, 128}, {c.tile_key, c.tile_key}, {c.tile_key, c.tile_key});
      !status.ok())
    return status;
  plan_sides(plan, a);
  if (plan.empty) return plan;
  if (const Status status = check_strides(plan, a); !status.ok()) return status;
  if (needs_promotion(a)) plan.promote_every = static_cast<int32_t>(keys_before_promotion(a.quantization) / c.tile_key);
  if (const Status status = plan_schedule(plan, a, c.tile_query(), 1, device); !status.ok()) return status;
  return plan;
}

std::string describe(const ForwardFp8Plan& plan, const Attention& a) {
  const Config& c = plan.variant->config;
  const Quantization& q = a.quantization;
  std::string text = std::string("8-bit forward on ") + name(a.backend) + ": ";
  if (plan.empty) return text + "no output rows, nothing to launch\n";
  text += plan.variant->name;
  text += "\n  tile        " + std::to_string(c.tile_query()) + " queries x " + std::to_string(c.tile_key) + " keys, " +
          std::to_string(c.consumers) + " consumer warpgroups";
  text += "\n  head dims   " + std::to_string(a.head_dim) + " and " + std::to_string(a.value_dim) + " in " +
          std::to_string(c.head_dim);
  const auto scales = [](Granularity granularity, int rows) {
    if (granularity == Granularity::tensor) return std::string("one");
    if (granularity == Granularity::head) return std::string("one a head");
    return "one a block of " + std::to_string(rows) + " rows";
  };
  text += "\n  scales      query " + scales(q.query, q.query_rows) + ", key " + scales(q.key, q.key_rows) + ", value " +
          scales(q.value, q.value_rows);
  text += "\n  value       " + std::string(c.transposes() ? "rows, transposed by the producer" : "packed") +
          (q.value_mean ? ", its mean added to out" : "");
  text += "\n  promotion   " + (plan.promote_every > 0
                                    ? "every " + std::to_string(plan.promote_every * c.tile_key) + " keys"
                                    : std::string("none"));
  text += describe_schedule(plan);
  text += "\n  shared      " + std::to_string(c.shared_bytes()) + " bytes a block, " + std::to_string(c.threads()) +
          " threads";
  text += "\n  workspace   " + std::to_string(plan.workspace_bytes) + " bytes";
  return text + "\n";
}

}  // namespace tandem::internal
