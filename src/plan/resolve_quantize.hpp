// The steps of resolve() for Pass::quantize.
#pragma once

#include "plan/attention.hpp"

namespace tandem::internal {

/// Tensors, lengths, scales, rotary embedding; and nothing that only attention itself takes.
Status resolve_quantize(const Problem& problem, Attention& attention);

}  // namespace tandem::internal
