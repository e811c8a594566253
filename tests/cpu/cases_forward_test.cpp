// Inputs that broke other implementations, forward pass: one test a case, named by its id in the project's collection.
// Expected values are worked out by hand or come from the float64 oracle. Where a case was found on a larger size than
// a CPU test should take, the size is reduced and the comment says so.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/support.hpp"

namespace {

using tandem::Dtype;
using tandem::Status;
using testing_support::Case;
using testing_support::Config;
using testing_support::packed;
using testing_support::shape;
using testing_support::Tensor;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// Heads reduced from 16 to 3.
TEST(CasesForward, A1_NoKeys) {
  for (int64_t queries : {1, 64, 128, 256}) {
    for (bool causal : {false, true}) {
      Config c = shape(Dtype::bf16, 4, queries, 0, 3, 3, 128, causal);
      Case(c).check();
      c.head_dim = 192;
      Case same(c);
      same.check();
      EXPECT_EQ(same.out.get({3, queries - 1, 2, 127}), 0);
      EXPECT_EQ(same.lse.get({3, 2, queries - 1}), -infinity);
    }
  }
}

// Keys reduced from 4,096 to 256.
TEST(CasesForward, A2_NoQueriesOrNoBatch) {
  Case(shape(Dtype::bf16, 2, 0, 256, 2, 2, 64)).check();
  Case(shape(Dtype::bf16, 0, 64, 256, 2, 2, 64)).check();
  Case(packed(Dtype::bf16, {0, 0, 0}, {0, 10, 30}, 2, 2, 64)).check();
}

TEST(CasesForward, A3_ASequenceWithoutKeysAmongOthers) {
  Case c(packed(Dtype::bf16, {0, 4, 8, 12}, {0, 70, 70, 75}, 2, 2, 64));
  c.check();
  for (int64_t i = 4; i < 8; ++i) {
    for (int64_t column = 0; column < 64; ++column) EXPECT_EQ(c.out.get({i, 1, column}), 0);
    EXPECT_EQ(c.lse.get({1, i}), -infinity);
  }
}

// Reduced from 2,048 x 1,024 to 512 x 256.
TEST(CasesForward, A8_CausalWithMoreQueriesThanKeys) {
  Case c(shape(Dtype::bf16, 1, 512, 256, 1, 1, 128, true));
  c.check();
  EXPECT_EQ(c.lse.get({0, 0, 255}), -infinity);
  EXPECT_GT(c.lse.get({0, 0, 256}), -infinity);
}

TEST(CasesForward, B2_AMaximumBelowAnyFiniteSentinel) {
  Case c(shape(Dtype::bf16, 1, 1, 64, 1, 1, 128));
  c.query.fill(0);
  c.key.fill(0);
  c.query.set({0, 0, 0, 0}, 448);  // 448 * -544 + 8 * -161 = -245,000
  c.query.set({0, 0, 0, 1}, 8);
  for (int64_t j = 0; j < 64; ++j) {
    c.key.set({0, j, 0, 0}, -544);
    c.key.set({0, j, 0, 1}, -161);
  }
  c.check();
  EXPECT_NEAR(c.lse.get({0, 0, 0}), -21650.986, 0.005);
  double mean = 0;
  for (int64_t j = 0; j < 64; ++j) mean += c.value.get({0, j, 0, 5}) / 64;
  EXPECT_NEAR(c.out.get({0, 0, 0, 5}), mean, std::abs(mean) / 256);
}

TEST(CasesForward, B3_HugeEqualInputs) {
  for (const auto& [dtype, huge] : {std::pair{Dtype::bf16, 133120.0f}, std::pair{Dtype::fp16, 60000.0f}}) {
    for (int64_t keys : {1, 3, 200}) {
      Case c(shape(dtype, 1, 1, keys, 1, 1, 64));
      for (Tensor* tensor : {&c.query, &c.key, &c.value}) tensor->fill(huge);
      ASSERT_TRUE(c.run().ok());
      for (int64_t column = 0; column < 64; ++column) EXPECT_EQ(c.out.get({0, 0, 0, column}), huge) << keys;
    }
  }
}

TEST(CasesForward, B5_ValuesOfOneGiveOne) {
  Case c(shape(Dtype::bf16, 1, 16, 4096, 1, 1, 64));
  c.value.fill(1);
  ASSERT_TRUE(c.run().ok());
  double mean = 0;
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t column = 0; column < 64; ++column) {
      EXPECT_NEAR(c.out.get({0, i, 0, column}), 1, 0x1p-7);
      mean += c.out.get({0, i, 0, column}) / (16 * 64);
    }
  }
  EXPECT_NEAR(mean, 1, 1e-3);
}

TEST(CasesForward, B13_TheSoftcapComesBeforeTheMask) {
  Config config = shape(Dtype::fp32, 1, 64, 64, 1, 1, 64, true);
  config.softcap = 1;
  Case c(config);
  c.query.fill(0);
  for (int64_t j = 1; j < 64; ++j) {
    for (int64_t column = 0; column < 64; ++column) c.value.set({0, j, 0, column}, 1e4f);
  }
  c.check();
  for (int64_t column = 0; column < 64; ++column) {
    EXPECT_EQ(c.out.get({0, 0, 0, column}), c.value.get({0, 0, 0, column}));
  }
}

// Reduced from s1024 h32 to s160 h2.
TEST(CasesForward, B15_Softcap) {
  for (float cap : {10.0f, 15.0f}) {
    Config config = shape(Dtype::bf16, 2, 160, 160, 2, 2, 128, true);
    config.softcap = cap;
    config.scale = 1;  // scores of a deviation of 11, so that the cap is felt
    Case(config).check();
  }
}

TEST(CasesForward, B17_ANanInAQueryStaysInItsRow) {
  for (Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    Case clean(shape(dtype, 1, 16, 16, 1, 1, 8)), c(shape(dtype, 1, 16, 16, 1, 1, 8));
    ASSERT_TRUE(clean.run().ok());
    c.query.set({0, 5, 0, 3}, not_a_number);
    c.check();  // the judge demands NaN where the oracle has it
    for (int64_t i = 0; i < 16; ++i) {
      for (int64_t column = 0; column < 8; ++column) {
        if (i == 5) {
          EXPECT_TRUE(std::isnan(c.out.get({0, i, 0, column})));
        } else {
          EXPECT_EQ(c.out.get({0, i, 0, column}), clean.out.get({0, i, 0, column}));
        }
      }
    }
    EXPECT_TRUE(std::isnan(c.lse.get({0, 0, 5})));
  }
}

// A key's NaN reaches the rows that see it and, since masked scores are replaced, no other.
TEST(CasesForward, B17_ANanInAKeyReachesThoseThatSeeIt) {
  Case clean(shape(Dtype::fp32, 1, 160, 160, 1, 1, 64, true)), c(shape(Dtype::fp32, 1, 160, 160, 1, 1, 64, true));
  ASSERT_TRUE(clean.run().ok());
  c.key.set({0, 140, 0, 9}, not_a_number);
  c.check();
  EXPECT_EQ(c.out.get({0, 139, 0, 0}), clean.out.get({0, 139, 0, 0}));
  EXPECT_TRUE(std::isnan(c.out.get({0, 140, 0, 0})));
}

TEST(CasesForward, C1_NanBeyondTheUsedKeys) {
  Config config = shape(Dtype::fp16, 2, 1, 3, 1, 1, 64);
  config.used_key = {1, 3};
  Case c(config);  // rows beyond the used keys are NaN
  c.query.fill(0.5f);
  c.check();
  EXPECT_EQ(c.out.get({0, 0, 0, 7}), c.value.get({0, 0, 0, 7}));
}

TEST(CasesForward, C2_NanAndInfinityBeyondTheUsedKeys) {
  Config config = shape(Dtype::bf16, 4, 1, 128, 8, 8, 64);
  config.used_key = {32, 64, 96, 48};
  Case results[] = {Case(config), Case(config), Case(config)};
  const float tails[] = {0, not_a_number, std::numeric_limits<float>::infinity()};
  for (int n = 0; n < 3; ++n) {
    for (int64_t b = 0; b < 4; ++b) {
      for (int64_t j = config.used_key[static_cast<size_t>(b)]; j < 128; ++j) {
        for (int64_t column = 0; column < 64; ++column) {
          results[n].key.set({b, j, 3, column}, tails[n]);
          results[n].value.set({b, j, 3, column}, tails[n]);
        }
      }
    }
    results[n].check();
    EXPECT_EQ(results[n].out.content(), results[0].out.content());
    EXPECT_EQ(results[n].lse.content(), results[0].lse.content());
  }
}

TEST(CasesForward, C5_PaddingDoesNotCount) {
  Case c(shape(Dtype::bf16, 1, 1, 100, 8, 8, 128));
  c.query.fill(0);
  c.check();
  EXPECT_NEAR(c.lse.get({0, 4, 0}), std::log(100.0), 1e-5);
  double mean = 0;
  for (int64_t j = 0; j < 100; ++j) mean += c.value.get({0, j, 4, 9}) / 100;
  EXPECT_NEAR(c.out.get({0, 0, 4, 9}), mean, std::abs(mean) / 256);
}

TEST(CasesForward, C7_RowsBeyondTheLastSequenceAreAnError) {
  Config config = packed(Dtype::bf16, {0, 10, 32}, {0, 10, 32}, 2, 2, 64);
  config.total_query = config.total_key = 40;
  const Status status = Case(config).run();
  EXPECT_EQ(status.code, tandem::Code::invalid_argument);
  EXPECT_STREQ(status.argument, "cu_query");
}

// Reduced from s1024 and s16384 to s513.
TEST(CasesForward, D2_WindowsThatMeanCausal) {
  constexpr int64_t s = 513;
  Config config = shape(Dtype::bf16, 1, s, s, 1, 1, 128, true);
  Case causal(config);
  causal.check();
  for (int64_t left : {int64_t{-1}, s, s - 1}) {
    config.mask = {false, left, 0, {}};
    Case window(config);
    ASSERT_TRUE(window.run().ok());
    EXPECT_EQ(window.out.content(), causal.out.content()) << left;
  }
}

TEST(CasesForward, D3_AWindowThatLeavesRowsWithoutKeys) {
  Config config = shape(Dtype::fp32, 1, 129, 33, 1, 1, 64);
  config.mask = {false, 32, 64, {}};
  Case c(config);
  c.check();
  EXPECT_EQ(c.lse.get({0, 0, 31}), -infinity);
  EXPECT_EQ(c.out.get({0, 31, 0, 0}), 0);
  EXPECT_NEAR(c.out.get({0, 32, 0, 0}), c.value.get({0, 0, 0, 0}), 1e-6);  // key 0 alone
}

TEST(CasesForward, D4_WindowsWithoutCausal) {
  Config config = shape(Dtype::fp32, 1, 200, 200, 1, 1, 64);
  config.mask = {false, 17, 0, {}};
  Case(config).check();
  config.mask = {false, 0, 0, {}};
  Case c(config);
  c.check();
  for (int64_t i = 0; i < 200; ++i) EXPECT_EQ(c.out.get({0, i, 0, 11}), c.value.get({0, i, 0, 11}));
}

TEST(CasesForward, F2_MoreThan65535Sequences) {
  // Reduced from 16 tokens of d64 to 2 tokens of d8.
  std::vector<int32_t> sums(80001);
  for (size_t n = 0; n < sums.size(); ++n) sums[n] = static_cast<int32_t>(2 * n);
  Case varlen(packed(Dtype::bf16, sums, sums, 1, 1, 8));
  ASSERT_TRUE(varlen.run().ok());
  oracle::Problem p = varlen.oracle_problem();
  oracle::Verdict verdict =
      oracle::judge_forward(p, oracle::sampled_rows(p, 500), varlen.out.oracle(), varlen.lse.oracle_lse());
  EXPECT_TRUE(verdict.ok) << verdict.text;
  Case dense(shape(Dtype::bf16, 65537, 4, 4, 1, 1, 8));
  ASSERT_TRUE(dense.run().ok());
  p = dense.oracle_problem();
  std::vector<oracle::RowIndex> rows = oracle::sampled_rows(p, 500);
  rows.push_back({65536, 0, 3});
  verdict = oracle::judge_forward(p, rows, dense.out.oracle(), dense.lse.oracle_lse());
  EXPECT_TRUE(verdict.ok) << verdict.text;
}

// One of the two lengths, and the ends of 1 to 256 queries.
TEST(CasesForward, F10_CausalOverALongCache) {
  for (int64_t queries : {1, 256}) {
    Case c(shape(Dtype::bf16, 1, queries, 32769, 1, 1, 128, true));
    ASSERT_TRUE(c.run().ok());
    const oracle::Problem p = c.oracle_problem();
    const oracle::Verdict verdict =
        oracle::judge_forward(p, oracle::sampled_rows(p, 6), c.out.oracle(), c.lse.oracle_lse());
    EXPECT_TRUE(verdict.ok) << verdict.text;
  }
}

// Reduced from s2048 to s200.
TEST(CasesForward, G3_SlicesOfOneProjection) {
  constexpr int64_t s = 200, heads = 18, dim = 64;
  Config config = shape(Dtype::fp16, 1, s, s, 16, 1, dim, true);
  Case copies(config);
  Tensor fused(Dtype::fp16, {s, 1, heads, dim});
  for (int64_t i = 0; i < s; ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      const Tensor& from = h < 16 ? copies.query : (h == 16 ? copies.key : copies.value);
      for (int64_t column = 0; column < dim; ++column) {
        fused.set({i, 0, h, column}, static_cast<float>(from.get({0, i, h < 16 ? h : 0, column})));
      }
    }
  }
  copies.check();
  const auto slice = [&](int64_t head, int64_t count) {
    tandem::TensorView view = fused.view();
    view.spec.size = {1, s, count, dim};
    view.spec.stride = {heads * dim, heads * dim, dim, 1};
    view.data = static_cast<uint16_t*>(view.data) + head * dim;
    return view;
  };
  Case sliced(config);
  tandem::Arguments arguments = sliced.arguments();
  arguments.query = slice(0, 16);
  arguments.key = slice(16, 1);
  arguments.value = slice(17, 1);
  tandem::Problem problem = sliced.problem();
  problem.query = arguments.query.spec;
  problem.key = arguments.key.spec;
  problem.value = arguments.value.spec;
  const Status status = testing_support::run(tandem::Pass::forward, problem, arguments);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(sliced.out.content(), copies.out.content());
}

// A request gives the same bits alone, in a dense batch of 17 and in a packed batch.
TEST(CasesForward, K6_BatchMatesDoNotMatter) {
  const Config config = shape(Dtype::bf16, 17, 77, 130, 4, 2, 64, true);
  Case batch(config);
  ASSERT_TRUE(batch.run().ok());
  Config single = config;
  single.batch = 1;
  std::vector<int32_t> cu_query{0}, cu_key{0};
  for (int32_t b = 1; b <= 17; ++b) {
    cu_query.push_back(b * 77);
    cu_key.push_back(b * 130);
  }
  Case all(packed(Dtype::bf16, cu_query, cu_key, 4, 2, 64, true));
  const auto copy = [](const Tensor& from, int64_t b, Tensor& to, int64_t first_row, bool is_packed) {
    const auto size = from.spec().size;
    for (int64_t i = 0; i < size[1]; ++i) {
      for (int64_t h = 0; h < size[2]; ++h) {
        for (int64_t c = 0; c < size[3]; ++c) {
          const auto index =
              is_packed ? std::vector<int64_t>{first_row + i, h, c} : std::vector<int64_t>{0, first_row + i, h, c};
          to.set(index, static_cast<float>(from.get({b, i, h, c})));
        }
      }
    }
  };
  for (int64_t b = 0; b < 17; ++b) {
    copy(batch.query, b, all.query, b * 77, true);
    copy(batch.key, b, all.key, b * 130, true);
    copy(batch.value, b, all.value, b * 130, true);
  }
  ASSERT_TRUE(all.run().ok());
  EXPECT_EQ(all.out.content(), batch.out.content());
  Case alone(single);
  copy(batch.query, 11, alone.query, 0, false);
  copy(batch.key, 11, alone.key, 0, false);
  copy(batch.value, 11, alone.value, 0, false);
  ASSERT_TRUE(alone.run().ok());
  const std::vector<uint8_t> bits = alone.out.content(), of_all = batch.out.content();
  EXPECT_TRUE(std::equal(bits.begin(), bits.end(), of_all.begin() + 11 * static_cast<std::ptrdiff_t>(bits.size())));
}

// Scratch doesn't grow with the sequence: 16,384 tokens of 8 heads of d64 need less than a tenth of a GiB beside the
// tensors themselves.
// A row computed alone, as in decoding, and among others: within a rounding (bits aren't promised across shapes).
TEST(CasesForward, N8_ARowAloneAndAmongOthers) {
  Case many(shape(Dtype::bf16, 1, 64, 200, 2, 2, 128, true)), alone(shape(Dtype::bf16, 1, 1, 200, 2, 2, 128, true));
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t column = 0; column < 128; ++column) {
      alone.query.set({0, 0, head, column}, static_cast<float>(many.query.get({0, 63, head, column})));
      for (int64_t row = 0; row < 200; ++row) {
        alone.key.set({0, row, head, column}, static_cast<float>(many.key.get({0, row, head, column})));
        alone.value.set({0, row, head, column}, static_cast<float>(many.value.get({0, row, head, column})));
      }
    }
  }
  many.check();
  alone.check();
  for (int64_t head = 0; head < 2; ++head) {
    EXPECT_NEAR(alone.lse.get({0, head, 0}), many.lse.get({0, head, 63}), 1e-5);
    for (int64_t column = 0; column < 128; ++column) {
      const double a = alone.out.get({0, 0, head, column}), b = many.out.get({0, 63, head, column});
      EXPECT_NEAR(a, b, std::abs(b) / 128) << "head " << head << ", column " << column;
    }
  }
}

TEST(CasesForward, MemoryIsLinear) {
  for (const tandem::Pass pass : {tandem::Pass::forward, tandem::Pass::backward}) {
    size_t bytes[2];
    for (int n = 0; n < 2; ++n) {
      const auto tensor = tandem::contiguous(Dtype::fp32, tandem::cpu(), {1, n == 0 ? 2048 : 16384, 8, 64});
      tandem::Problem p;
      p.query = p.key = p.value = p.out = tensor;
      p.lse = tandem::contiguous(Dtype::fp32, tandem::cpu(), {1, 8, n == 0 ? 2048 : 16384});
      if (pass == tandem::Pass::backward) p.grad_out = p.grad_query = p.grad_key = p.grad_value = tensor;
      p.options.threads = 8;
      const auto plan = tandem::plan(pass, p);
      ASSERT_TRUE(plan.ok()) << plan.status().message;
      bytes[n] = plan->workspace_bytes();
    }
    EXPECT_EQ(bytes[0], bytes[1]);
    EXPECT_LT(bytes[1], size_t{100} << 20);
  }
}

}  // namespace
