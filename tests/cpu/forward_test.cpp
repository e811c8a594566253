// The CPU's forward pass against the float64 oracle, over a seeded sweep.
#include <algorithm>

#include "cpu/support.hpp"
#include "oracle/random.hpp"

namespace {

using tandem::Dtype;
using testing_support::Case;
using testing_support::Config;
using testing_support::Layout;

/// Draws from a short list; the index of the draw makes the choices of one case independent of each other.
template <class T>
T pick(uint64_t seed, uint64_t& draw, std::initializer_list<T> of) {
  return of.begin()[oracle::hash(seed, draw++) % of.size()];
}

void draw_mask(uint64_t seed, uint64_t& draw, Config& c) {
  switch (pick(seed, draw, {0, 1, 2, 3, 4})) {
    case 1:
      c.mask.causal = true;
      break;
    case 2:
      c.mask = {false, pick<int64_t>(seed, draw, {-1, 0, 17, 100}), pick<int64_t>(seed, draw, {-1, 0, 5, 64}), {}};
      break;
    case 3:
      c.mask = {true, pick<int64_t>(seed, draw, {0, 1, 33, 130}), -1, {}};
      break;
    case 4:
      c.mask = {false, 40, pick<int64_t>(seed, draw, {0, 20}), pick<int64_t>(seed, draw, {-30, 0, 7, 90})};
      break;
    default:
      break;
  }
}

void draw_lengths(uint64_t seed, uint64_t& draw, Config& c) {
  const int kind = pick(seed, draw, {0, 0, 1, 2, 3});
  c.queries = pick<int64_t>(seed, draw, {1, 2, 7, 63, 64, 65, 97, 127, 129, 200});
  c.keys = pick<int64_t>(seed, draw, {1, 3, 63, 64, 65, 127, 128, 129, 191, 257, 300});
  c.batch = pick<int64_t>(seed, draw, {1, 2, 3});
  const auto used = [&](int64_t most) {
    std::vector<int32_t> lengths;
    for (int64_t b = 0; b < c.batch; ++b) {
      lengths.push_back(static_cast<int32_t>(oracle::integer(seed, draw++, b == 1 ? 0 : most / 2, most)));
    }
    return lengths;
  };
  const auto cumulative = [&](int64_t most) {
    std::vector<int32_t> sums{0};
    for (int64_t b = 0; b < c.batch; ++b) {
      sums.push_back(sums.back() + static_cast<int32_t>(oracle::integer(seed, draw++, b == 2 ? 0 : 1, most)));
    }
    return sums;
  };
  if (kind == 1 || kind == 3) {
    c.cu_query = cumulative(c.queries);
    c.cu_key = cumulative(c.keys);
    c.total_key = c.cu_key.back() + pick<int64_t>(seed, draw, {0, 9});
  }
  if (kind == 2) {
    c.used_key = used(c.keys);
    if (pick(seed, draw, {false, true})) c.used_query = used(c.queries);
  }
  if (kind == 3) {
    for (int64_t b = 0; b < c.batch; ++b) {
      const auto at = static_cast<size_t>(b);
      c.used_key.push_back((c.cu_key[at + 1] - c.cu_key[at]) * 2 / 3);
    }
  }
}

Config draw_config(uint64_t seed) {
  uint64_t draw = 0;
  Config c;
  c.seed = seed;
  c.dtype = pick(seed, draw, {Dtype::fp32, Dtype::fp16, Dtype::bf16});
  c.head_dim = pick<int64_t>(seed, draw, {1, 8, 24, 40, 64, 65, 80, 96, 128, 192, 256, 512});
  c.value_dim = pick<int64_t>(seed, draw, {c.head_dim, c.head_dim, 3, 64, 128});
  c.key_heads = pick<int64_t>(seed, draw, {1, 2, 3});
  c.query_heads = c.key_heads * pick<int64_t>(seed, draw, {1, 2, 3});
  c.layout = pick(seed, draw, {Layout::contiguous, Layout::head_major, Layout::gaps});
  c.out_layout = pick(seed, draw, {Layout::contiguous, Layout::head_major, Layout::gaps});
  draw_lengths(seed, draw, c);
  draw_mask(seed, draw, c);
  if (pick(seed, draw, {0, 0, 1}) == 1) c.scale = pick(seed, draw, {0.0f, -0.2f, 1.0f, 0.03f});
  if (pick(seed, draw, {0, 0, 0, 1}) == 1) c.softcap = pick(seed, draw, {1.0f, 15.0f});
  c.sinks = pick(seed, draw, {0, 0, 0, 1}) == 1;
  c.threads = pick(seed, draw, {1, 2});
  return c;
}

class Sweep : public testing::TestWithParam<int> {};

TEST_P(Sweep, MatchesTheOracle) {
  for (int n = 0; n < 12; ++n) Case(draw_config(static_cast<uint64_t>(GetParam() * 100 + n))).check();
}

INSTANTIATE_TEST_SUITE_P(Forward, Sweep, testing::Range(0, 16));

TEST(Forward, EveryHeadDim) {
  for (int64_t dim = 8; dim <= 512; dim += 8) {
    Config c;
    c.dtype = std::array{Dtype::fp32, Dtype::fp16, Dtype::bf16}[static_cast<size_t>(dim / 8 % 3)];
    c.queries = 19;
    c.keys = 37;
    c.head_dim = c.value_dim = dim;
    c.mask.causal = dim % 16 == 0;
    c.seed = static_cast<uint64_t>(dim);
    Case(c).check();
  }
}

TEST(Forward, ThreadsDoNotChangeABit) {
  Config c;
  c.queries = c.keys = 301;
  c.query_heads = 4;
  c.key_heads = 2;
  c.mask.causal = true;
  Case one(c);
  c.threads = 1;
  ASSERT_TRUE(one.run().ok());
  for (int threads : {2, 3, 7}) {
    c.threads = threads;
    Case many(c);
    ASSERT_TRUE(many.run().ok());
    EXPECT_EQ(one.out.content(), many.out.content()) << threads << " threads";
    EXPECT_EQ(one.lse.content(), many.lse.content());
  }
}

TEST(Forward, RunsOnTheCallersThreads) {
  Config c;
  c.queries = c.keys = 200;
  c.query_heads = c.key_heads = 3;
  Case given(c), own(c);
  ASSERT_TRUE(own.run().ok());
  int64_t tasks = 0;
  auto executor = std::make_shared<tandem::Executor>();
  executor->concurrency = 3;
  executor->parallel = [&](int64_t count, const std::function<void(int64_t)>& task) {
    tasks += count;
    for (int64_t n = count; n-- > 0;) task(n);
  };
  tandem::Problem problem = given.problem();
  problem.options.executor = executor;
  ASSERT_TRUE(testing_support::run(tandem::Pass::forward, problem, given.arguments()).ok());
  EXPECT_EQ(tasks, 3);
  EXPECT_EQ(own.out.content(), given.out.content());
}

TEST(Forward, BroadcastHeadsAndBatch) {
  Config c;
  c.batch = 2;
  c.query_heads = c.key_heads = 3;
  Case strided(c);
  strided.key = testing_support::Tensor(c.dtype, {2, 64, 3, 64}, std::vector<int64_t>{0, 64, 0, 1});
  strided.key.fill_normal(0, 0, 64, 5);
  strided.value = testing_support::Tensor(c.dtype, {2, 64, 3, 64}, std::vector<int64_t>{0, 0, 64, 1});
  strided.value.fill_normal(0, 0, 64, 6);
  strided.check();
}

}  // namespace
