// Values of cumulative and used lengths that lie in CPU memory.
#include "api/arguments.hpp"
#include "common/status.hpp"

namespace tandem::internal {
namespace {

struct Side {
  const char* cu_name;
  const char* used_name;
  const int32_t* cu;    // null where dense
  const int32_t* used;  // null where every row counts
  int64_t total, maximum;
  // Rows of an output beyond the last sequence would be left undefined, so that the last sequence must end the tensor;
  // rows of a key or value are never read there.
  bool fills;
};

Status check_cumulative(const Side& side, int64_t batch) {
  if (side.cu[0] != 0) {
    return error(Code::invalid_argument, side.cu_name, "%s[0] is %d; cumulative lengths begin at 0", side.cu_name,
                 side.cu[0]);
  }
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t length = static_cast<int64_t>(side.cu[i + 1]) - side.cu[i];
    const auto at = static_cast<long long>(i);
    if (length < 0) {
      return error(Code::invalid_argument, side.cu_name, "%s[%lld] is %d after %d; cumulative lengths don't decrease",
                   side.cu_name, at + 1, side.cu[i + 1], side.cu[i]);
    }
    if (length > side.maximum) {
      return error(Code::invalid_argument, side.cu_name,
                   "sequence %lld of %s has length %lld; the plan's maximum is %lld", at, side.cu_name,
                   static_cast<long long>(length), static_cast<long long>(side.maximum));
    }
  }
  const int64_t last = side.cu[batch];
  if (last > side.total || (side.fills && last != side.total)) {
    return error(Code::invalid_argument, side.cu_name,
                 "the last of %s is %lld; it must be %s%lld, the rows of the tensor", side.cu_name,
                 static_cast<long long>(last), side.fills ? "" : "at most ", static_cast<long long>(side.total));
  }
  return {};
}

Status check_used(const Side& side, int64_t batch) {
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t length = side.cu == nullptr ? side.maximum : static_cast<int64_t>(side.cu[i + 1]) - side.cu[i];
    if (side.used[i] < 0 || side.used[i] > length) {
      return error(Code::invalid_argument, side.used_name, "%s[%lld] is %d; that sequence has %lld rows",
                   side.used_name, static_cast<long long>(i), side.used[i], static_cast<long long>(length));
    }
  }
  return {};
}

}  // namespace

Status check_length_values(const Attention& attention, const Arguments& arguments) noexcept {
  if (attention.device.kind != DeviceKind::cpu) return {};
  const auto lengths = [](const TensorView& view, bool present) {
    return present ? static_cast<const int32_t*>(view.data) : nullptr;
  };
  const Side sides[] = {
      {"cu_query", "used_query", lengths(arguments.cu_query, attention.packed_query),
       lengths(arguments.used_query, attention.used_query), attention.total_query, attention.max_query, true},
      {"cu_key", "used_key", lengths(arguments.cu_key, attention.packed_key),
       lengths(arguments.used_key, attention.used_key), attention.total_key, attention.max_key,
       attention.pass == Pass::backward},
  };
  for (const Side& side : sides) {
    if (side.cu != nullptr) {
      if (Status status = check_cumulative(side, attention.batch); !status.ok()) return status;
    }
    if (side.used != nullptr) {
      if (Status status = check_used(side, attention.batch); !status.ok()) return status;
    }
  }
  return {};
}

}  // namespace tandem::internal
