// The step of resolve() that finds the batch and the rows of query and key.
#pragma once

#include "plan/attention.hpp"

namespace tandem::internal {

/// The tensor that tells the rows of one side, of rank 4 dense or rank 3 packed; absent (null) in a pass that can do
/// without.
struct Side {
  const char* name;
  const TensorSpec* spec;
};

/// Lengths of an absent side are ignored, so that one tandem::Lengths serves all passes of an attention.
Status resolve_lengths(const Lengths& lengths, const Side& query, const Side& key, Attention& attention);

}  // namespace tandem::internal
