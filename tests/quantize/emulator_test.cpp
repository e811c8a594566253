// The Hopper quantiser's own kernels in the emulator: no report of its checks, and the CPU's bytes.
#include <gtest/gtest.h>

#include "quantize/support.hpp"

namespace quantize_support {
namespace {

using tandem::Backend;

class EmulatedQuantiser : public testing::TestWithParam<size_t> {};

TEST_P(EmulatedQuantiser, GivesTheBytesOfTheCpu) {
  const tandem::Status status = tandem::available(Backend::emulator);
  ASSERT_TRUE(status.ok()) << status.message;
  const auto memory = tandem::tools::host_memory();
  const Case c = cases()[GetParam()];
  Job expected = make_job(c);
  ASSERT_EQ(run(expected, Backend::cpu, *memory), "");
  for (const uint64_t seed : {1, 2}) {
    Job job = make_job(c);
    ASSERT_EQ(run(job, Backend::emulator, *memory, seed), "");
    EXPECT_EQ(compare(job, expected), "") << "seed " << seed;
  }
}

std::string test_name(const testing::TestParamInfo<size_t>& info) {
  return std::to_string(info.param) + "_" + cases()[info.param].name;
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedQuantiser, testing::Range(size_t{0}, cases().size()), test_name);

}  // namespace
}  // namespace quantize_support
