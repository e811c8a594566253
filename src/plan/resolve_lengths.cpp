// See resolve_lengths.hpp.
#include "plan/resolve_lengths.hpp"

#include "common/status.hpp"
#include "plan/spec.hpp"

namespace tandem::internal {
namespace {

long long wide(int64_t x) { return x; }

/// A dense side's batch; `batch` is -1 until a side or lengths.batch has told it.
Status take_batch(const Side& side, bool packed, int64_t& batch) {
  if (side.spec == nullptr || packed) return {};
  const int64_t own = side.spec->size[0];
  if (batch >= 0 && own != batch) {
    return error(Code::invalid_argument, side.name, "%s has batch %lld, but query or lengths.batch has %lld", side.name,
                 wide(own), wide(batch));
  }
  batch = own;
  return {};
}

Status take_maximum(const Side& side, const char* maximum_name, bool packed, int64_t given, int64_t batch,
                    int64_t& maximum, int64_t& total) {
  if (side.spec == nullptr) return {};
  const int64_t rows = side.spec->size[packed ? 0 : 1];
  if (given < -1) {
    return error(Code::invalid_argument, maximum_name, "%s is %lld; it must be -1 (absent) or a length", maximum_name,
                 wide(given));
  }
  if (!packed && given != -1 && given != rows) {
    return error(Code::invalid_argument, maximum_name, "%s is %lld, but %s isn't packed and has %lld rows; leave it -1",
                 maximum_name, wide(given), side.name, wide(rows));
  }
  if (packed && batch == 0 && rows > 0) {
    return error(Code::invalid_argument, "lengths.batch", "lengths.batch is 0, but %s has %lld rows", side.name,
                 wide(rows));
  }
  if (packed) {
    total = rows;
  } else if (__builtin_mul_overflow(batch, rows, &total)) {
    total = row_limit;
  }
  if (rows >= row_limit || total >= row_limit) {
    return error(Code::invalid_argument, side.name, "%s with sizes %s has too many rows; at most %lld are served",
                 side.name, shape_text(*side.spec).text, wide(row_limit - 1));
  }
  maximum = given == -1 || given > rows ? rows : given;
  return {};
}

}  // namespace

Status resolve_lengths(const Lengths& lengths, const Side& query, const Side& key, Attention& attention) {
  const bool has_query = query.spec != nullptr, has_key = key.spec != nullptr;
  attention.packed_query = has_query && lengths.packed_query;
  attention.packed_key = has_key && lengths.packed_key;
  attention.used_query = has_query && lengths.used_query;
  attention.used_key = has_key && lengths.used_key;
  int64_t batch = lengths.batch;
  if (batch < -1 || batch >= row_limit) {
    return error(Code::invalid_argument, "lengths.batch", "lengths.batch is %lld; it must be -1 (absent) or a count",
                 wide(batch));
  }
  if (Status status = take_batch(query, attention.packed_query, batch); !status.ok()) return status;
  if (Status status = take_batch(key, attention.packed_key, batch); !status.ok()) return status;
  if (batch < 0) {
    return error(Code::invalid_argument, "lengths.batch",
                 "lengths.batch is missing; packed tensors don't tell the number of sequences");
  }
  attention.batch = batch;
  if (Status status = take_maximum(query, "lengths.max_query", attention.packed_query, lengths.max_query, batch,
                                   attention.max_query, attention.total_query);
      !status.ok()) {
    return status;
  }
  return take_maximum(key, "lengths.max_key", attention.packed_key, lengths.max_key, batch, attention.max_key,
                      attention.total_key);
}

}  // namespace tandem::internal
