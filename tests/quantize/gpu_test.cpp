// The Hopper quantiser on a GPU gives the CPU's bytes.
#include <gtest/gtest.h>

#include "quantize/support.hpp"

namespace quantize_support {
namespace {

using tandem::Backend;

class GpuQuantiser : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (tandem::available(Backend::sm90).ok()) memory_ = tandem::tools::memory_for(Backend::sm90);
  }
  static void TearDownTestSuite() { memory_.reset(); }
  void SetUp() override {
    const tandem::Status status = tandem::available(Backend::sm90);
    if (!status.ok()) GTEST_SKIP() << "there is no Hopper GPU here: " << status.message;
  }
  inline static std::unique_ptr<tandem::tools::Memory> memory_;
};

class GpuQuantiserCases : public GpuQuantiser, public testing::WithParamInterface<size_t> {};

TEST_P(GpuQuantiserCases, GivesTheBytesOfTheCpu) {
  const auto host = tandem::tools::host_memory();
  const Case c = cases()[GetParam()];
  Job expected = make_job(c), job = make_job(c);
  ASSERT_EQ(run(expected, Backend::cpu, *host), "");
  ASSERT_EQ(run(job, Backend::sm90, *memory_), "");
  EXPECT_EQ(compare(job, expected), "");
}

TEST_F(GpuQuantiser, GivesTheBytesOfTheCpuForManyBlocks) {
  const auto host = tandem::tools::host_memory();
  const Case c = many_heads("many_heads", 3000);
  Job expected = make_job(c), job = make_job(c);
  ASSERT_EQ(run(expected, Backend::cpu, *host), "");
  ASSERT_EQ(run(job, Backend::sm90, *memory_), "");
  EXPECT_EQ(compare(job, expected), "");
}

std::string test_name(const testing::TestParamInfo<size_t>& info) {
  return std::to_string(info.param) + "_" + cases()[info.param].name;
}

INSTANTIATE_TEST_SUITE_P(All, GpuQuantiserCases, testing::Range(size_t{0}, cases().size()), test_name);

}  // namespace
}  // namespace quantize_support
