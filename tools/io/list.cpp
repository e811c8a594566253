// Lists of integers from the command line.
#include "tools/io/list.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "tools/failure.hpp"
#include "tools/io/file.hpp"
#include "tools/io/npy.hpp"

namespace tandem::tools {

std::vector<int64_t> parse_integers(const std::string& text, const std::string& option, int count) {
  std::vector<int64_t> values;
  const char *at = text.data(), *const end = at + text.size();
  while (true) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error == std::errc::result_out_of_range) {
      throw UsageError(fmt::format("{}: '{}' holds a number that is too large", option, text));
    }
    if (error != std::errc() || (next != end && *next != ',')) {
      throw UsageError(fmt::format("{}: '{}' is not a list of integers separated by commas", option, text));
    }
    values.push_back(value);
    if (next == end) break;
    at = next + 1;
  }
  if (count >= 0 && values.size() != static_cast<size_t>(count)) {
    throw UsageError(fmt::format("{}: {} integers are needed, '{}' has {}", option, count, text, values.size()));
  }
  return values;
}

std::vector<int32_t> parse_lengths(const std::string& text, const std::string& option) {
  std::vector<int64_t> wide;
  if (ends_with(text, ".npy")) {
    const Array array = read_npy(text);
    if (array.shape.size() != 1) {
      throw Failure(fmt::format("{}: lengths need one axis, the shape is {}", text, to_string(array.shape)));
    }
    wide = integers(array, text);
  } else {
    wide = parse_integers(text, option);
  }
  std::vector<int32_t> narrow;
  for (const int64_t value : wide) {
    if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
      throw UsageError(fmt::format("{}: {} doesn't fit in 32 bits", option, value));
    }
    narrow.push_back(static_cast<int32_t>(value));
  }
  return narrow;
}

}  // namespace tandem::tools
