// The steps of resolve() that aren't about tensors.
#pragma once

#include "plan/attention.hpp"

namespace tandem::internal {

/// Scale, softcap, mask, sinks.
Status resolve_scores(const Problem& problem, Attention& attention);
Status resolve_options(const Problem& problem, Attention& attention);
/// Replaces Backend::automatic by the backend of the tensors' device and refuses tensors of another device or dtype.
Status resolve_backend(const Problem& problem, Attention& attention);

}  // namespace tandem::internal
