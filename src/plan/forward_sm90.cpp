// Decisions of the Hopper forward.
#include "plan/forward_sm90.hpp"

#include <algorithm>

#include "common/status.hpp"
#include "plan/spec.hpp"

namespace tandem::internal {
namespace {

using sm90::Side;
using sm90::forward::Variant;

Status check_supported(const Attention& a) {
  if (a.dtype != Dtype::bf16 && a.dtype != Dtype::fp16)
    return error(Code::unsupported, "query", "the %s backend takes fp16 and bf16, not %s; the cpu backend takes fp32",
                 name(a.backend), name(a.dtype));
  if (a.softcap != 0)
    return error(Code::unsupported, "softcap", "the %s backend has no softcap yet; it must be 0, or the backend cpu",
                 name(a.backend));
  if (a.head_dim % 8 != 0 || a.head_dim > 256)
    return error(Code::unsupported, "query",
                 "the %s backend takes head dims that are multiples of 8 up to 256, not %lld", name(a.backend),
                 static_cast<long long>(a.head_dim));
  if (a.value_dim % 8 != 0 || a.value_dim > 256)
    return error(Code::unsupported, "value",
                 "the %s backend takes value dims that are multiples of 8 up to 256, not %lld", name(a.backend),
                 static_cast<long long>(a.value_dim));
  return {};
}

/// The variant with the smallest head dims that serve, unless one is given. Lengths and batch have no say in it, so
/// that the result of a sequence is the same in any batch.
const Variant* choose_variant(const Attention& a) {
  const auto serves = [&](const sm90::forward::Config& c) {
    return c.dtype == a.dtype && c.head_dim >= a.head_dim && c.value_dim >= a.value_dim;
  };
  if (a.variant != nullptr) return serves(a.variant->config) ? a.variant : nullptr;
  const Variant* best = nullptr;
  const auto dims = [](const Variant& v) { return v.config.head_dim + v.config.value_dim; };
  for (const Variant& variant : sm90::forward_variants) {
    if (!serves(variant.config)) continue;
    if (best == nullptr || dims(variant) < dims(*best)) best = &variant;
  }
  return best;
}

void plan_copies(ForwardPlan& plan, const Attention& a) {
  plan.copy_query = sm90::unfit_for_tma(a.query, plan.query_side);
  plan.copy_key = sm90::unfit_for_tma(a.key, plan.key_side);
  plan.copy_value = sm90::unfit_for_tma(a.value, plan.key_side);
  plan.copy_out = sm90::unfit_for_tma(a.out, plan.query_side);
  // With used lengths one number of rows leads from a sequence to the next, in keys and values alike.
  const auto pitch = [&](const TensorSpec& spec, const char* copied) {
    const Strides s = strides(spec);
    return copied != nullptr || s.row == 0 ? plan.key_side.rows : s.batch / s.row;
  };
  if (plan.key_side.ragged && plan.key_side.batch > 1 && pitch(a.key, plan.copy_key) != pitch(a.value, plan.copy_value))
    plan.copy_key = plan.copy_value =
        "keys and values of a sequence lie at different rows, which used lengths don't allow";
  const auto bytes = [](const TensorSpec& spec) { return static_cast<size_t>(elements(spec)) * 2; };
  if (plan.copy_query) plan.query_at = reserve(plan, bytes(a.query));
  if (plan.copy_key) plan.key_at = reserve(plan, bytes(a.key));
  if (plan.copy_value) plan.value_at = reserve(plan, bytes(a.value));
  if (plan.copy_out) plan.out_at = reserve(plan, bytes(a.out));
}

}  // namespace

Result<ForwardPlan> plan_forward_sm90(const Attention& a, const sm90::DeviceTraits& device) noexcept {
  if (const Status status = check_supported(a); !status.ok()) return status;
  ForwardPlan plan;
  plan.variant = choose_variant(a);
  if (plan.variant == nullptr)
    return error(Code::unsupported, "value", "no compiled kernel serves head dim %lld with value dim %lld",
                 static_cast<long long>(a.head_dim), static_cast<long long>(a.value_dim));
  plan_sides(plan, a);
  if (plan.empty) return plan;
  plan_copies(plan, a);
  if (const Status status = plan_schedule(plan, a, plan.variant->config.tile_query(), 2, device); !status.ok())
    return status;
  return plan;
}

std::string describe(const ForwardPlan& plan, const Attention& a) {
  const auto& c = plan.variant->config;
  std::string text = std::string("forward on ") + name(a.backend) + ": ";
  if (plan.empty) return text + "no output rows, nothing to launch\n";
  text += plan.variant->name;
  text += "\n  tile        " + std::to_string(c.tile_query()) + " queries x " + std::to_string(c.tile_key) + " keys, " +
          std::to_string(c.consumers) + " consumer warpgroups, " + std::to_string(c.stages) + " stages of K and V";
  text += "\n  head dims   " + std::to_string(a.head_dim) + " and " + std::to_string(a.value_dim) + " in " +
          std::to_string(c.head_dim) + " and " + std::to_string(c.value_dim);
  text += describe_schedule(plan);
  text += "\n  shared      " + std::to_string(c.shared_bytes()) + " bytes a block, " + std::to_string(c.threads()) +
          " threads";
  text += "\n  workspace   " + std::to_string(plan.workspace_bytes) + " bytes";
  const auto copy = [&](const char* tensor, const char* reason) {
    if (reason != nullptr) text += std::string("\n  copy        ") + tensor + ": " + reason;
  };
  copy("query", plan.copy_query);
  copy("key", plan.copy_key);
  copy("value", plan.copy_value);
  copy("out", plan.copy_out);
  return text + "\n";
}

}  // namespace tandem::internal
