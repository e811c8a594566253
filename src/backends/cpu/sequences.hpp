// The lengths of a run's sequences, read from its arguments and checked.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/attention.hpp"

namespace tandem::internal::cpu {

/// Where a sequence lies (its first rows within the batch entry, or within the packed tensor) and how long it is.
/// `room` counts the rows that the tensor holds for it, beyond `queries` where only some are used.
struct Sequence {
  int64_t first_query = 0, queries = 0, query_room = 0;
  int64_t first_key = 0, keys = 0, key_room = 0;
};

struct Sequences {
  std::vector<Sequence> entries;               // one a batch entry
  int64_t covered_query = 0, covered_key = 0;  // rows of packed tensors that belong to a sequence
};

Result<Sequences> read_sequences(const Attention& attention, const Arguments& arguments);

}  // namespace tandem::internal::cpu
