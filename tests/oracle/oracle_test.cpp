// The oracle itself: hand-worked rows, masks, number formats, finite differences of the gradients, and a judge that
// refuses what is wrong.
#include "oracle/oracle.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "oracle/random.hpp"

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// A float64 problem of one batch entry with normal data.
struct Small {
  std::vector<double> query, key, value, grad_out;
  oracle::Problem problem;

  Small(int64_t queries, int64_t keys, int64_t query_heads, int64_t key_heads, int64_t dim, int64_t value_dim) {
    const auto normal = [](int64_t count, uint64_t seed) {
      std::vector<double> values(static_cast<size_t>(count));
      for (size_t n = 0; n < values.size(); ++n) values[n] = oracle::normal(seed, n);
      return values;
    };
    query = normal(queries * query_heads * dim, 1);
    key = normal(keys * key_heads * dim, 2);
    value = normal(keys * key_heads * value_dim, 3);
    grad_out = normal(queries * query_heads * value_dim, 4);
    problem.sequences = oracle::dense_sequences(1, queries, keys);
    problem.query_heads = query_heads;
    problem.key_heads = key_heads;
    problem.head_dim = dim;
    problem.value_dim = value_dim;
    problem.query = oracle::dense(query.data(), oracle::Type::fp64, queries, query_heads, dim);
    problem.key = oracle::dense(key.data(), oracle::Type::fp64, keys, key_heads, dim);
    problem.value = oracle::dense(value.data(), oracle::Type::fp64, keys, key_heads, value_dim);
    problem.scale = 0.4;
  }

  oracle::Tensor gradient() const {
    return oracle::dense(grad_out.data(), oracle::Type::fp64, problem.sequences[0].queries, problem.query_heads,
                         problem.value_dim);
  }

  /// sum(out * grad_out), whose derivatives the gradients are.
  double loss() const {
    double sum = 0;
    const auto rows = oracle::all_rows(problem);
    const auto results = oracle::forward(problem, rows);
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int64_t c = 0; c < problem.value_dim; ++c) {
        sum += results[r].out[static_cast<size_t>(c)] * gradient().at(0, rows[r].query, rows[r].head, c);
      }
    }
    return sum;
  }

  void expect_finite_differences(std::vector<double>& values, const std::vector<double>& gradients) const {
    constexpr double step = 1e-5;
    ASSERT_EQ(values.size(), gradients.size());
    for (size_t n = 0; n < values.size(); ++n) {
      const double kept = values[n];
      values[n] = kept + step;
      const double above = loss();
      values[n] = kept - step;
      const double below = loss();
      values[n] = kept;
      EXPECT_NEAR((above - below) / (2 * step), gradients[n], 1e-7) << "element " << n;
    }
  }
};

void expect_gradients_right(Small& small) {
  const oracle::Gradients gradients = oracle::backward(small.problem, small.gradient());
  small.expect_finite_differences(small.query, gradients.query);
  small.expect_finite_differences(small.key, gradients.key);
  small.expect_finite_differences(small.value, gradients.value);
}

TEST(Oracle, GradientsAreFiniteDifferences) {
  Small small(5, 7, 1, 1, 3, 4);
  expect_gradients_right(small);
}

TEST(Oracle, GradientsWithGroupsMaskAndSoftcap) {
  Small small(6, 4, 4, 2, 3, 2);
  small.problem.causal = true;
  small.problem.left = 2;
  small.problem.softcap = 1.5;
  expect_gradients_right(small);
}

TEST(Oracle, GradientsWithSinks) {
  Small small(3, 5, 2, 1, 4, 3);
  const float sinks[] = {0.7f, -1.0f};
  small.problem.sinks = sinks;
  small.problem.scale = -0.3;
  expect_gradients_right(small);
}

TEST(Oracle, ARowWorkedByHand) {
  // Scores ln 1, ln 2, ln 3: probabilities 1/6, 2/6, 3/6.
  const double query[] = {1}, key[] = {0, std::log(2.0), std::log(3.0)}, value[] = {6, 12, 18};
  oracle::Problem p;
  p.sequences = oracle::dense_sequences(1, 1, 3);
  p.head_dim = p.value_dim = 1;
  p.query = oracle::dense(query, oracle::Type::fp64, 1, 1, 1);
  p.key = oracle::dense(key, oracle::Type::fp64, 3, 1, 1);
  p.value = oracle::dense(value, oracle::Type::fp64, 3, 1, 1);
  oracle::Row row = oracle::forward_row(p, {0, 0, 0});
  EXPECT_NEAR(row.out[0], 1 + 4 + 9, 1e-12);
  EXPECT_NEAR(row.lse, std::log(6.0), 1e-12);
  const float sink[] = {std::log(6.0f)};
  p.sinks = sink;
  row = oracle::forward_row(p, {0, 0, 0});
  EXPECT_NEAR(row.out[0], 7, 1e-6);
  EXPECT_NEAR(row.lse, std::log(12.0), 1e-6);
}

TEST(Oracle, MasksAlignToTheBottomRight) {
  oracle::Problem p;
  const oracle::Sequence s{0, 3, 0, 5};
  EXPECT_TRUE(oracle::sees(p, s, 0, 4));
  EXPECT_FALSE(oracle::sees(p, s, 0, 5));
  p.causal = true;  // query i stands at key i + 2
  EXPECT_TRUE(oracle::sees(p, s, 0, 2));
  EXPECT_FALSE(oracle::sees(p, s, 0, 3));
  p.left = 1;
  EXPECT_TRUE(oracle::sees(p, s, 0, 1));
  EXPECT_FALSE(oracle::sees(p, s, 0, 0));
  p.diagonal = 0;
  EXPECT_TRUE(oracle::sees(p, s, 0, 0));
  EXPECT_FALSE(oracle::sees(p, s, 0, 1));
  EXPECT_FALSE(oracle::sees(p, s, 2, 0));
}

TEST(Oracle, AQueryWithoutKeys) {
  Small small(4, 2, 1, 1, 3, 3);
  small.problem.causal = true;  // queries 0 and 1 stand before the first key
  const oracle::Row row = oracle::forward_row(small.problem, {0, 0, 1});
  EXPECT_EQ(row.lse, -infinity);
  EXPECT_EQ(row.out, std::vector<double>(3, 0));
  const oracle::Gradients gradients = oracle::backward(small.problem, small.gradient());
  for (size_t n = 0; n < 6; ++n) EXPECT_EQ(gradients.query[n], 0);
}

TEST(Oracle, RoundsToNearestEven) {
  using oracle::Type;
  EXPECT_EQ(oracle::round_to(1 + 0x1p-8, Type::bf16), 1);
  EXPECT_EQ(oracle::round_to(1 + 0x1.8p-7, Type::bf16), 1 + 0x1p-6);
  EXPECT_EQ(oracle::round_to(1 + 0x1.1p-8, Type::bf16), 1 + 0x1p-7);
  EXPECT_EQ(oracle::round_to(65519, Type::fp16), 65504);
  EXPECT_EQ(oracle::round_to(65520, Type::fp16), infinity);
  EXPECT_EQ(oracle::round_to(0x1p-25, Type::fp16), 0);
  EXPECT_EQ(oracle::round_to(0x1.8p-24, Type::fp16), 0x1p-23);
  EXPECT_TRUE(std::isnan(oracle::round_to(not_a_number, Type::fp16)));
}

TEST(Oracle, DecodesEveryHalfFormat) {
  const uint16_t bits[] = {0x3c00, 0x0001, 0x7bff, 0xfc00, 0x7e00};
  const oracle::Tensor fp16 = oracle::dense(bits, oracle::Type::fp16, 1, 1, 5);
  EXPECT_EQ(fp16.at(0, 0, 0, 0), 1);
  EXPECT_EQ(fp16.at(0, 0, 0, 1), 0x1p-24);
  EXPECT_EQ(fp16.at(0, 0, 0, 2), 65504);
  EXPECT_EQ(fp16.at(0, 0, 0, 3), -infinity);
  EXPECT_TRUE(std::isnan(fp16.at(0, 0, 0, 4)));
  const uint16_t wide[] = {0x3f80, 0xc049};
  const oracle::Tensor bf16 = oracle::dense(wide, oracle::Type::bf16, 1, 1, 2);
  EXPECT_EQ(bf16.at(0, 0, 0, 0), 1);
  EXPECT_EQ(bf16.at(0, 0, 0, 1), -3.140625);
}

/// The standard computation's own result as the result under test.
struct Judged {
  Small small{9, 33, 2, 1, 8, 6};
  std::vector<float> out, lse;

  Judged() {
    small.problem.causal = true;
    out.resize(9 * 2 * 6);
    lse.resize(2 * 9);
    for (const auto& row : oracle::all_rows(small.problem)) {
      const oracle::Row result = oracle::forward_row(small.problem, row);
      for (int64_t c = 0; c < 6; ++c) {
        out[static_cast<size_t>((row.query * 2 + row.head) * 6 + c)] =
            static_cast<float>(result.out[static_cast<size_t>(c)]);
      }
      lse[static_cast<size_t>(row.head * 9 + row.query)] = static_cast<float>(result.lse);
    }
  }
  oracle::Verdict judge() const {
    return oracle::judge_forward(small.problem, oracle::all_rows(small.problem),
                                 oracle::dense(out.data(), oracle::Type::fp32, 9, 2, 6),
                                 oracle::dense_lse(lse.data(), 2, 9));
  }
};

TEST(Judge, AcceptsARoundedResult) {
  const Judged judged;
  EXPECT_TRUE(judged.judge().ok) << judged.judge().text;
}

TEST(Judge, RefusesErrorsNanAndInfinity) {
  for (const double wrong : {1.001, not_a_number, infinity}) {
    Judged judged;
    judged.out[17] = static_cast<float>(judged.out[17] * wrong);
    EXPECT_FALSE(judged.judge().ok) << wrong;
    Judged other;
    other.lse[3] = static_cast<float>(other.lse[3] * wrong);
    EXPECT_FALSE(other.judge().ok) << wrong;
  }
}

TEST(Judge, RefusesNumbersWhereNanIsRight) {
  Judged judged;
  judged.small.query[0] = not_a_number;  // query 0 of head 0
  EXPECT_FALSE(judged.judge().ok);
  for (int c = 0; c < 6; ++c) judged.out[static_cast<size_t>(c)] = static_cast<float>(not_a_number);
  judged.lse[0] = static_cast<float>(not_a_number);
  EXPECT_TRUE(judged.judge().ok) << judged.judge().text;
}

TEST(Judge, RefusesWrongGradients) {
  Small small(7, 9, 2, 1, 4, 5);
  const oracle::Gradients exact = oracle::backward(small.problem, small.gradient());
  const auto judge = [&](const oracle::Gradients& g) {
    return oracle::judge_backward(small.problem, small.gradient(),
                                  oracle::dense(g.query.data(), oracle::Type::fp64, 7, 2, 4),
                                  oracle::dense(g.key.data(), oracle::Type::fp64, 9, 1, 4),
                                  oracle::dense(g.value.data(), oracle::Type::fp64, 9, 1, 5));
  };
  EXPECT_TRUE(judge(exact).ok) << judge(exact).text;
  for (auto part : {&oracle::Gradients::query, &oracle::Gradients::key, &oracle::Gradients::value}) {
    oracle::Gradients wrong = exact;
    (wrong.*part)[5] += 0.01;
    EXPECT_FALSE(judge(wrong).ok);
    (wrong.*part)[5] = not_a_number;
    EXPECT_FALSE(judge(wrong).ok);
  }
}

TEST(Random, IsNormalAndMadeAgainFromItsIndex) {
  double sum = 0, squares = 0;
  constexpr int count = 20000;
  for (uint64_t n = 0; n < count; ++n) {
    const double x = oracle::normal(5, n);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / count, 0, 0.03);
  EXPECT_NEAR(squares / count, 1, 0.05);
  EXPECT_EQ(oracle::normal(5, 77), oracle::normal(5, 77));
  EXPECT_NE(oracle::normal(5, 77), oracle::normal(6, 77));
}

TEST(Random, SampledRowsLieInTheirSequences) {
  oracle::Problem p;
  p.sequences = oracle::packed_sequences({0, 100, 100, 3000}, {0, 10, 20, 30});
  p.query_heads = 3;
  const auto rows = oracle::sampled_rows(p, 50);
  EXPECT_EQ(rows.size(), 50u);
  for (const auto& row : rows) {
    EXPECT_LT(row.query, p.sequences[static_cast<size_t>(row.batch)].queries);
    EXPECT_LT(row.head, 3);
  }
}

}  // namespace
