// Cumulative and used lengths on the CPU are checked before anything is computed.
#include "backends/cpu/sequences.hpp"

#include "common/status.hpp"

namespace tandem::internal::cpu {
namespace {

/// One side, query or key, of every sequence.
struct Side {
  bool packed, used;
  const char *cumulative_name, *used_name, *maximum_name;
  const int32_t *cumulative, *lengths;
  int64_t maximum, total;
};

struct Extent {
  int64_t first, length, room;
};

Status read_side(const Side& side, int64_t batch, std::vector<Extent>& extents) {
  if (side.packed && side.cumulative == nullptr) {
    return error(Code::invalid_argument, side.cumulative_name, "packed lengths need %s with %lld int32 values",
                 side.cumulative_name, static_cast<long long>(batch + 1));
  }
  if (side.used && side.lengths == nullptr) {
    return error(Code::invalid_argument, side.used_name, "used lengths need %s with %lld int32 values", side.used_name,
                 static_cast<long long>(batch));
  }
  if (side.packed && side.cumulative[0] != 0) {
    return error(Code::invalid_argument, side.cumulative_name, "cumulative lengths must begin with 0, not %d",
                 side.cumulative[0]);
  }
  for (int64_t b = 0; b < batch; ++b) {
    Extent extent{0, side.maximum, side.maximum};
    if (side.packed) {
      const int64_t begin = side.cumulative[b], end = side.cumulative[b + 1];
      if (end < begin || end > side.total) {
        return error(Code::invalid_argument, side.cumulative_name,
                     "cumulative lengths must not decrease nor pass the tensor's %lld rows; entries %lld and %lld are "
                     "%lld and %lld",
                     static_cast<long long>(side.total), static_cast<long long>(b), static_cast<long long>(b + 1),
                     static_cast<long long>(begin), static_cast<long long>(end));
      }
      extent = {begin, end - begin, end - begin};
    }
    if (side.used) {
      const int64_t length = side.lengths[b];
      if (length < 0 || length > extent.room) {
        return error(Code::invalid_argument, side.used_name, "used length %lld is %lld, but must be from 0 to %lld",
                     static_cast<long long>(b), static_cast<long long>(length), static_cast<long long>(extent.room));
      }
      extent.length = length;
    }
    if (extent.length > side.maximum) {
      return error(Code::invalid_argument, side.cumulative_name, "sequence %lld has %lld rows, more than %s = %lld",
                   static_cast<long long>(b), static_cast<long long>(extent.length), side.maximum_name,
                   static_cast<long long>(side.maximum));
    }
    extents.push_back(extent);
  }
  return {};
}

const int32_t* values(const TensorView& view) { return static_cast<const int32_t*>(view.data); }

}  // namespace

Result<Sequences> read_sequences(const Attention& attention, const Arguments& arguments) {
  std::vector<Extent> queries, keys;
  const Side query{attention.packed_query,
                   attention.used_query,
                   "cu_query",
                   "used_query",
                   "lengths.max_query",
                   values(arguments.cu_query),
                   values(arguments.used_query),
                   attention.max_query,
                   attention.total_query};
  const Side key{
      attention.packed_key,     attention.used_key,         "cu_key",          "used_key",         "lengths.max_key",
      values(arguments.cu_key), values(arguments.used_key), attention.max_key, attention.total_key};
  if (const Status status = read_side(query, attention.batch, queries); !status.ok()) return status;
  if (const Status status = read_side(key, attention.batch, keys); !status.ok()) return status;
  Sequences sequences;
  for (int64_t b = 0; b < attention.batch; ++b) {
    const auto at = static_cast<size_t>(b);
    sequences.entries.push_back(
        {queries[at].first, queries[at].length, queries[at].room, keys[at].first, keys[at].length, keys[at].room});
  }
  if (attention.batch > 0) {
    sequences.covered_query = queries.back().first + queries.back().room;
    sequences.covered_key = keys.back().first + keys.back().room;
  }
  return sequences;
}

}  // namespace tandem::internal::cpu
