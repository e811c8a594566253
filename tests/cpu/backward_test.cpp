// The CPU's backward pass against the oracle's float64 gradients, over a seeded sweep.
#include <array>

#include "cpu/sweep.hpp"

namespace {

using tandem::Dtype;
using testing_support::Case;
using testing_support::Config;

class BackwardSweep : public testing::TestWithParam<int> {};

TEST_P(BackwardSweep, MatchesTheOracle) {
  for (int n = 0; n < 8; ++n) {
    Case(testing_support::draw_config(tandem::Pass::backward, static_cast<uint64_t>(50000 + GetParam() * 100 + n)))
        .check_backward();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeded, BackwardSweep, testing::Range(0, 16));

TEST(Backward, EveryHeadDim) {
  for (int64_t dim = 8; dim <= 512; dim += 8) {
    Config c;
    c.dtype = std::array{Dtype::fp32, Dtype::fp16, Dtype::bf16}[static_cast<size_t>(dim / 8 % 3)];
    c.queries = 13;
    c.keys = 21;
    c.head_dim = c.value_dim = dim;
    c.mask.causal = dim % 16 == 0;
    c.seed = static_cast<uint64_t>(dim);
    Case(c).check_backward();
  }
}

TEST(Backward, ThreadsDoNotChangeABit) {
  Config c;
  c.queries = 230;
  c.keys = 301;
  c.query_heads = 4;
  c.key_heads = 2;
  c.mask.causal = true;
  c.threads = 1;
  Case one(c);
  ASSERT_TRUE(one.run_backward().ok());
  for (int threads : {2, 7}) {
    c.threads = threads;
    Case many(c);
    ASSERT_TRUE(many.run_backward().ok());
    EXPECT_EQ(one.grad_query.content(), many.grad_query.content()) << threads << " threads";
    EXPECT_EQ(one.grad_key.content(), many.grad_key.content()) << threads << " threads";
    EXPECT_EQ(one.grad_value.content(), many.grad_value.content()) << threads << " threads";
  }
}

}  // namespace
