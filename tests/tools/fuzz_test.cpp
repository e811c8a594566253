// A seeded loop that damages valid files: the readers must return an array that is consistent, or throw Failure; the
// sanitizer builds make it find reads out of bounds.
#include <gtest/gtest.h>

#include "oracle/random.hpp"
#include "tests/tools/support.hpp"
#include "tools/io/npy.hpp"
#include "tools/io/safetensors.hpp"

namespace tandem::tools {
namespace {

constexpr uint64_t rounds = 20'000;

/// One to four of: a byte changed, a run deleted, a run doubled, the end cut off.
Bytes damaged(Bytes bytes, uint64_t seed) {
  uint64_t index = 0;
  const auto draw = [&](size_t below) {
    return static_cast<size_t>(oracle::integer(seed, index++, 0, static_cast<int64_t>(below) - 1));
  };
  const size_t changes = 1 + draw(4);
  // Most of what can go wrong is in the header.
  const size_t reach = draw(4) == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 160);
  for (size_t i = 0; i < changes && !bytes.empty(); ++i) {
    const size_t at = draw(std::min(reach, bytes.size()));
    const auto begin = bytes.begin() + static_cast<long>(at);
    const auto end = begin + static_cast<long>(std::min(bytes.size() - at, 1 + draw(12)));
    switch (draw(6)) {
      case 0:
        bytes.erase(begin, end);
        break;
      case 1: {
        const Bytes copy(begin, end);
        bytes.insert(begin, copy.begin(), copy.end());
        break;
      }
      case 2:
        bytes.resize(at);
        break;
      case 3:
        *begin = static_cast<std::byte>("0123456789-,()[]{}':"[draw(20)]);
        break;
      default:
        *begin = static_cast<std::byte>(draw(256));
    }
  }
  return bytes;
}

void expect_consistent(const Array& array) {
  EXPECT_EQ(array.bytes.size(), static_cast<size_t>(count_elements(array)) * size_of(array.dtype));
}

TEST(Fuzz, NpyReaderSurvivesDamage) {
  const Bytes good = format_npy(array_of(std::vector<float>(60, 1.0F), {3, 4, 5}, Dtype::fp16));
  uint64_t refused = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    try {
      expect_consistent(parse_npy(damaged(good, round), "fuzz"));
    } catch (const Failure&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 4) << "the damage is too mild to test anything";
  EXPECT_LT(refused, rounds) << "no damaged file was read, so that only the first check is tested";
}

TEST(Fuzz, SafetensorsReaderSurvivesDamage) {
  const Bytes good = format_safetensors({{"x.query", array_of(std::vector<float>(12, 1.0F), {3, 4}, Dtype::fp16)},
                                         {"x.key", array_of(std::vector<float>(6, 1.0F), {6}, Dtype::bf16)}});
  uint64_t refused = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    try {
      const auto file = Safetensors::parse(damaged(good, round), "fuzz");
      for (const auto& name : file.names()) expect_consistent(file.at(name));
    } catch (const Failure&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 4);
  EXPECT_LT(refused, rounds);
}

}  // namespace
}  // namespace tandem::tools
