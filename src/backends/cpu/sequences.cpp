// The lengths of a run's sequences.
#include "backends/cpu/sequences.hpp"

namespace tandem::internal::cpu {
namespace {

struct Extent {
  int64_t first, length, room;
};

/// One side, query or key, of sequence b.
Extent extent(const TensorView& cumulative, const TensorView& used, int64_t maximum, int64_t b) {
  Extent e{0, maximum, maximum};
  if (cumulative.present()) {
    const int32_t* sums = static_cast<const int32_t*>(cumulative.data);
    e = {sums[b], sums[b + 1] - sums[b], sums[b + 1] - sums[b]};
  }
  if (used.present()) e.length = static_cast<const int32_t*>(used.data)[b];
  return e;
}

}  // namespace

std::vector<Sequence> read_sequences(const Attention& a, const Arguments& arguments) {
  const TensorView none;
  std::vector<Sequence> sequences;
  sequences.reserve(static_cast<size_t>(a.batch));
  for (int64_t b = 0; b < a.batch; ++b) {
    const Extent query =
        extent(a.packed_query ? arguments.cu_query : none, a.used_query ? arguments.used_query : none, a.max_query, b);
    const Extent key =
        extent(a.packed_key ? arguments.cu_key : none, a.used_key ? arguments.used_key : none, a.max_key, b);
    sequences.push_back({query.first, query.length, query.room, key.first, key.length, key.room});
  }
  return sequences;
}

}  // namespace tandem::internal::cpu
