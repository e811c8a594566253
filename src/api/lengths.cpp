// The values of cumulative and used lengths.
#include <algorithm>
#include <vector>

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

/// Lengths where the host can read them; empty where the plan takes none.
Status fetch(const Executable& executable, const TensorView& view, int64_t count, void* stream,
             std::vector<int32_t>& held, const int32_t*& values) {
  values = static_cast<const int32_t*>(view.data);
  if (executable.attention().device.kind == DeviceKind::cpu || count == 0) return {};
  held.resize(static_cast<size_t>(count));
  values = held.data();
  return executable.copy_to_host(held.data(), view.data, held.size() * sizeof(int32_t), stream);
}

Status check_side(const Executable& executable, const TensorView& cu, const TensorView& used, void* stream, Side side) {
  const int64_t batch = executable.attention().batch;
  std::vector<int32_t> cu_held, used_held;
  if (cu.present()) {
    if (Status status = fetch(executable, cu, batch + 1, stream, cu_held, side.cu); !status.ok()) return status;
    if (Status status = check_cumulative(side, batch); !status.ok()) return status;
  }
  if (used.present()) {
    if (Status status = fetch(executable, used, batch, stream, used_held, side.used); !status.ok()) return status;
    return check_used(side, batch);
  }
  return {};
}

/// Where the rotary embedding begins: each sequence's rows must lie in the table.
Status check_positions(const Executable& executable, const Arguments& arguments, void* stream) {
  const Attention& a = executable.attention();
  if (!arguments.position.present()) return {};
  std::vector<int32_t> held;
  const int32_t* values = nullptr;
  if (Status status = fetch(executable, arguments.position, a.batch, stream, held, values); !status.ok()) return status;
  const int64_t rows = a.rope_cos.size[0], longest = std::max(a.max_query, a.max_key);
  for (int64_t i = 0; i < a.batch; ++i) {
    if (values[i] >= 0 && values[i] + longest <= rows) continue;
    return error(
        Code::invalid_argument, "position",
        "position[%lld] is %d; with sequences of up to %lld rows it must be 0 to %lld, as rope_cos has %lld rows",
        static_cast<long long>(i), values[i], static_cast<long long>(longest), static_cast<long long>(rows - longest),
        static_cast<long long>(rows));
  }
  return {};
}

}  // namespace

Status check_length_values(const Executable& executable, const Arguments& arguments, void* stream) {
  const Attention& a = executable.attention();
  if (a.device.kind != DeviceKind::cpu && !a.options.check_lengths) return {};
  const Side query{"cu_query", "used_query", nullptr, nullptr, a.total_query, a.max_query, true};
  const Side key{"cu_key", "used_key", nullptr, nullptr, a.total_key, a.max_key, a.pass != Pass::forward};
  if (Status status = check_side(executable, arguments.cu_query, arguments.used_query, stream, query); !status.ok()) {
    return status;
  }
  if (Status status = check_side(executable, arguments.cu_key, arguments.used_key, stream, key); !status.ok()) {
    return status;
  }
  return check_positions(executable, arguments, stream);
}

}  // namespace tandem::internal
