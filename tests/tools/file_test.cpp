// Files are written whole or not at all.
#include "tools/io/file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/tools/support.hpp"

namespace tandem::tools {
namespace {

size_t entries(const TemporaryFolder& folder) {
  const auto begin = std::filesystem::directory_iterator(folder.path());
  return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

TEST(File, ReturnsWhatWasWritten) {
  const TemporaryFolder folder;
  const Bytes bytes(3'000'000, std::byte{7});
  write_file(folder.file("a"), bytes);
  EXPECT_EQ(read_file(folder.file("a")), bytes);
  EXPECT_EQ(entries(folder), 1U) << "a temporary file was left behind";
  struct stat status {};
  ASSERT_EQ(stat(folder.file("a").c_str(), &status), 0);
  EXPECT_NE(status.st_mode & S_IRUSR, 0U);
}

TEST(File, ReplacesAnOlderOne) {
  const TemporaryFolder folder;
  write_file(folder.file("a"), std::string("long before"));
  write_file(folder.file("a"), std::string("new"));
  EXPECT_EQ(read_file(folder.file("a")).size(), 3U);
}

TEST(File, SaysWhyItCannot) {
  const TemporaryFolder folder;
  expect_failure([&] { read_file(folder.file("none")); }, "No such file");
  expect_failure([&] { read_file(folder.path().string()); }, "directory");
  expect_failure([&] { write_file(folder.path().string(), std::string("x")); }, "directory");
  expect_failure([&] { write_file(folder.file("no/such/folder"), std::string("x")); }, "can't write");
  expect_failure([&] { require_writable(folder.file("no/such/folder")); }, "can't write");
}

TEST(File, AskingWhetherItCanBeWrittenLeavesNothing) {
  const TemporaryFolder folder;
  write_file(folder.file("a"), std::string("kept"));
  require_writable(folder.file("a"));
  require_writable(folder.file("b"));
  EXPECT_EQ(entries(folder), 1U);
  EXPECT_EQ(read_file(folder.file("a")).size(), 4U);
}

TEST(File, WritesToDevices) { EXPECT_NO_THROW(write_file("/dev/null", std::string("gone"))); }

}  // namespace
}  // namespace tandem::tools
