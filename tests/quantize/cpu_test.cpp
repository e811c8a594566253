// The CPU's quantiser against the float64 judge, and what planning refuses.
#include <gtest/gtest.h>

#include "quantize/support.hpp"

namespace quantize_support {
namespace {

using tandem::Backend;

class CpuQuantiser : public testing::TestWithParam<size_t> {};

TEST_P(CpuQuantiser, AgreesWithTheOracle) {
  const auto memory = tandem::tools::host_memory();
  Job job = make_job(cases()[GetParam()]);
  ASSERT_EQ(run(job, Backend::cpu, *memory), "");
  EXPECT_EQ(judge(job), "");
}

std::string test_name(const testing::TestParamInfo<size_t>& info) {
  return std::to_string(info.param) + "_" + cases()[info.param].name;
}

INSTANTIATE_TEST_SUITE_P(All, CpuQuantiser, testing::Range(size_t{0}, cases().size()), test_name);

}  // namespace
}  // namespace quantize_support
