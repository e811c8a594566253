// The lengths of a run's sequences, read from its arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/attention.hpp"

namespace tandem::internal::cpu {

/// Where a sequence lies (its first rows within the batch entry, or within the packed tensor) and how long it is.
/// `room` is what the tensor holds for it: more than its length where only some rows are used.
struct Sequence {
  int64_t first_query = 0, queries = 0, query_room = 0;
  int64_t first_key = 0, keys = 0, key_room = 0;
};

/// One entry for each of the batch. The values have been checked by api/.
std::vector<Sequence> read_sequences(const Attention& attention, const Arguments& arguments);

}  // namespace tandem::internal::cpu
