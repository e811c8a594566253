// Numbers and shapes as people type them: "1,1024,16,64", "512,0".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::tools {

/// The integers of a comma-separated list. UsageError, naming `option`, for anything else; `count`, unless negative, is
/// how many there must be.
std::vector<int64_t> parse_integers(const std::string& text, const std::string& option, int count = -1);

/// A list, or the integers of a .npy file where `text` ends in .npy; all must fit in 32 bits.
std::vector<int32_t> parse_lengths(const std::string& text, const std::string& option);

}  // namespace tandem::tools
