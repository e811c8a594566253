// Lists of integers as people type them.
#include "tools/io/list.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/tools/support.hpp"
#include "tools/io/npy.hpp"

namespace tandem::tools {
namespace {

TEST(List, ReadsIntegers) {
  EXPECT_EQ(parse_integers("1,1024,16,64", "--random", 4), (std::vector<int64_t>{1, 1024, 16, 64}));
  EXPECT_EQ(parse_integers("-1,0", "--window", 2), (std::vector<int64_t>{-1, 0}));
  EXPECT_EQ(parse_integers("7", "--x"), (std::vector<int64_t>{7}));
}

TEST(List, NamesTheOptionOfABadList) {
  for (const char* bad : {"", ",", "1,", ",1", "1,,2", "a", "1 2", "1;2", "1.5", "0x10", "+1", "1,2a"}) {
    expect_failure<UsageError>([&] { parse_integers(bad, "--window"); }, "--window: '" + std::string(bad) + "'");
  }
  expect_failure<UsageError>([] { parse_integers("1,2", "--random", 4); }, "4 integers are needed");
  expect_failure<UsageError>([] { parse_integers("99999999999999999999", "--random"); }, "too large");
}

TEST(List, LengthsComeFromTextOrFile) {
  EXPECT_EQ(parse_lengths("0,10,32", "--cu-seqlens-q"), (std::vector<int32_t>{0, 10, 32}));
  expect_failure<UsageError>([] { parse_lengths("0,3000000000", "--cu-seqlens-q"); }, "32 bits");
  const TemporaryFolder folder;
  const int64_t values[] = {0, 5, 9};
  Array array{Dtype::int64, {3}, Bytes(sizeof values)};
  std::memcpy(array.bytes.data(), values, sizeof values);
  write_npy(folder.file("cu.npy"), array);
  EXPECT_EQ(parse_lengths(folder.file("cu.npy"), "--cu-seqlens-q"), (std::vector<int32_t>{0, 5, 9}));
  array.shape = {1, 3};
  write_npy(folder.file("cu.npy"), array);
  expect_failure([&] { parse_lengths(folder.file("cu.npy"), "--cu-seqlens-q"); }, "one axis");
  write_npy(folder.file("cu.npy"), array_of({1, 2}, {2}));
  expect_failure([&] { parse_lengths(folder.file("cu.npy"), "--cu-seqlens-q"); }, "int32 or int64");
}

}  // namespace
}  // namespace tandem::tools
