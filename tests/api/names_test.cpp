// Names, version and the list of kernels.
#include <algorithm>

#include "support.hpp"

namespace tandem::testing {
namespace {

TEST(Names, EveryValueHasItsOwn) {
  EXPECT_STREQ(name(Dtype::bf16), "bf16");
  EXPECT_STREQ(name(Dtype::none), "none");
  EXPECT_STREQ(name(static_cast<Dtype>(77)), "unknown");
  EXPECT_STREQ(name(Backend::sm90), "sm90");
  EXPECT_STREQ(name(static_cast<Backend>(-1)), "unknown");
  EXPECT_STREQ(name(Code::unsupported), "unsupported");
  EXPECT_STREQ(name(static_cast<Code>(1000)), "unknown");
  std::vector<std::string> seen;
  for (int i = 0; i <= 7; ++i) seen.emplace_back(name(static_cast<Dtype>(i)));
  for (int i = 0; i <= 3; ++i) seen.emplace_back(name(static_cast<Backend>(i)));
  for (int i = 0; i <= 6; ++i) seen.emplace_back(name(static_cast<Code>(i)));
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  EXPECT_FALSE(std::binary_search(seen.begin(), seen.end(), "unknown"));
}

TEST(Names, VersionAgreesWithTheHeader) {
  EXPECT_STREQ(version(), TANDEM_VERSION);
  EXPECT_EQ(std::string(version()), std::to_string(TANDEM_VERSION_MAJOR) + "." + std::to_string(TANDEM_VERSION_MINOR) +
                                        "." + std::to_string(TANDEM_VERSION_PATCH));
}

TEST(Names, KernelsBeyondTheLastAreEmpty) {
  EXPECT_STREQ(kernel_info(kernel_count()).name, "");
  EXPECT_STREQ(kernel_info(SIZE_MAX).name, "");
  for (size_t i = 0; i < kernel_count(); ++i) EXPECT_STRNE(kernel_info(i).name, "");
}

TEST(Names, AvailableSaysWhyNot) {
  const Status unknown = available(static_cast<Backend>(42));
  EXPECT_FALSE(unknown.ok());
  for (const Backend backend : {Backend::automatic, Backend::cpu, Backend::sm90, Backend::emulator}) {
    const Status status = available(backend);
    EXPECT_EQ(status.ok(), status.message[0] == '\0') << status.message;
  }
}

}  // namespace
}  // namespace tandem::testing
