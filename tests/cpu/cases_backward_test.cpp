// Inputs that broke other implementations, backward pass: one test a case, named by its id in the project's collection.
#include <cmath>
#include <limits>

#include "cpu/support.hpp"

namespace {

using tandem::Dtype;
using testing_support::Case;
using testing_support::Config;
using testing_support::Layout;
using testing_support::packed;
using testing_support::shape;
using testing_support::Tensor;

void expect_zero_rows(const Tensor& tensor, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i) {
    for (int64_t h = 0; h < tensor.spec().size[1]; ++h) {
      for (int64_t c = 0; c < tensor.spec().size[2]; ++c) ASSERT_EQ(tensor.get({i, h, c}), 0) << "row " << i;
    }
  }
}

// Heads reduced from 16 to 3.
TEST(CasesBackward, A1_NoKeys) {
  for (int64_t queries : {1, 64, 256}) {
    for (bool causal : {false, true}) {
      Case c(shape(Dtype::bf16, 2, queries, 0, 3, 3, 128, causal));
      c.check_backward();
      EXPECT_EQ(c.grad_query.get({1, queries - 1, 2, 127}), 0);
    }
  }
}

// Keys reduced from 4,096 to 256.
TEST(CasesBackward, A2_NoQueriesOrNoBatch) {
  Case c(shape(Dtype::bf16, 2, 0, 256, 2, 2, 64));
  c.check_backward();
  EXPECT_EQ(c.grad_key.get({1, 255, 1, 63}), 0);
  EXPECT_EQ(c.grad_value.get({1, 255, 1, 63}), 0);
  Case(shape(Dtype::bf16, 0, 64, 256, 2, 2, 64)).check_backward();
  Case(packed(Dtype::bf16, {0, 0, 0}, {0, 10, 30}, 2, 2, 64)).check_backward();
}

TEST(CasesBackward, A5_KeysWithoutQueries) {
  for (int64_t dim : {64, 128}) {
    for (bool causal : {false, true}) {
      Case c(packed(Dtype::bf16, {0, 150, 150, 300}, {0, 100, 200, 300}, 8, 2, dim, causal));
      c.check_backward();
      expect_zero_rows(c.grad_key, 100, 200);
      expect_zero_rows(c.grad_value, 100, 200);
    }
  }
}

// Reduced from 2,048 x 1,024 to 256 x 128.
TEST(CasesBackward, A8_CausalWithMoreQueriesThanKeys) {
  Case c(shape(Dtype::bf16, 1, 256, 128, 1, 1, 128, true));
  c.check_backward();
  for (int64_t i = 0; i < 128; ++i) EXPECT_EQ(c.grad_query.get({0, i, 0, 17}), 0);
}

TEST(CasesBackward, B7_EqualScoresFarBelowZero) {
  Case c(shape(Dtype::bf16, 1, 1, 128, 2, 2, 64));
  c.query.fill(4);
  c.key.fill(-3.75f);  // 64 * 4 * -3.75 / 8 = -120
  c.check_backward();
  for (int64_t j = 0; j < 128; ++j) {
    EXPECT_NEAR(c.grad_value.get({0, j, 1, 3}), c.grad_out.get({0, 0, 1, 3}) / 128, 1e-4);
  }
}

TEST(CasesBackward, B8_ASingleKey) {
  Config config = shape(Dtype::fp16, 1, 1, 1, 1, 1, 16);
  config.deviation = 3;
  Case c(config);
  c.grad_out.fill(1);
  c.check_backward();
  for (int64_t column = 0; column < 16; ++column) {
    EXPECT_EQ(c.out.get({0, 0, 0, column}), c.value.get({0, 0, 0, column}));
    EXPECT_EQ(c.grad_value.get({0, 0, 0, column}), 1);
    EXPECT_NEAR(c.grad_query.get({0, 0, 0, column}), 0, 1e-2);
    EXPECT_NEAR(c.grad_key.get({0, 0, 0, column}), 0, 1e-2);
  }
}

TEST(CasesBackward, B9_FarMoreQueriesThanKeysUnderCausal) {
  Case c(packed(Dtype::fp16, {0, 76, 110, 256}, {0, 1, 2, 3}, 1, 1, 32, true));
  c.check_backward();
  const int64_t rows[] = {75, 109, 255};
  for (int64_t b = 0; b < 3; ++b) {
    EXPECT_EQ(c.out.get({rows[b], 0, 5}), c.value.get({b, 0, 5}));
    EXPECT_EQ(c.grad_value.get({b, 0, 5}), c.grad_out.get({rows[b], 0, 5}));
  }
  expect_zero_rows(c.out, 0, 75);
  expect_zero_rows(c.grad_query, 0, 75);
}

// Reduced from s1024 h32 to s130 h2.
TEST(CasesBackward, B15_Softcap) {
  for (float cap : {10.0f, 15.0f}) {
    Config config = shape(Dtype::bf16, 2, 130, 130, 2, 2, 128, true);
    config.softcap = cap;
    config.scale = 0.5f;
    Case(config).check_backward();
  }
}

TEST(CasesBackward, C2_NanBeyondTheUsedLengths) {
  Config config = shape(Dtype::bf16, 4, 40, 128, 4, 2, 64, true);
  config.used_key = {32, 64, 128, 0};
  config.used_query = {40, 0, 17, 5};
  Case(config).check_backward();  // rows beyond are NaN in all inputs, and must be 0 in the gradients
}

// The full size: products of sizes pass 2^31 where rows are padded to tiles of 128.
TEST(CasesBackward, F1_ManySequencesOfOneToken) {
  constexpr int64_t batch = 8300, heads = 16, dim = 128, count = batch * heads * dim;
  const auto tensor = tandem::contiguous(Dtype::bf16, tandem::cpu(), {batch, 1, heads, dim});
  std::vector<uint16_t> input(count), gradient(count), out(count, 0x7fff), grad_query(out), grad_key(out),
      grad_value(out);
  std::vector<float> lse(batch * heads);
  for (size_t n = 0; n < input.size(); ++n) {
    input[n] = static_cast<uint16_t>(0x3f00 + n % 97);     // 0.5 to about 1
    gradient[n] = static_cast<uint16_t>(0x3e80 + n % 89);  // 0.25 to about 0.7
  }
  tandem::Problem p;
  p.query = p.key = p.value = p.out = tensor;
  p.lse = tandem::contiguous(Dtype::fp32, tandem::cpu(), {batch, heads, 1});
  tandem::Arguments a;
  a.query = a.key = a.value = {tensor, input.data()};
  a.out = {tensor, out.data()};
  a.lse = {p.lse, lse.data()};
  ASSERT_TRUE(testing_support::run(tandem::Pass::forward, p, a).ok());
  EXPECT_EQ(out, input);
  p.grad_out = p.grad_query = p.grad_key = p.grad_value = tensor;
  a.grad_out = {tensor, gradient.data()};
  a.grad_query = {tensor, grad_query.data()};
  a.grad_key = {tensor, grad_key.data()};
  a.grad_value = {tensor, grad_value.data()};
  ASSERT_TRUE(testing_support::run(tandem::Pass::backward, p, a).ok());
  EXPECT_EQ(grad_value, gradient);
  size_t infinite = 0;
  for (size_t n = 0; n < grad_query.size(); ++n) {
    infinite += (grad_query[n] & 0x7f80) == 0x7f80 || (grad_key[n] & 0x7f80) == 0x7f80;
  }
  EXPECT_EQ(infinite, 0u);
}

// Reduced from 16 tokens of d64 to 2 tokens of d8.
TEST(CasesBackward, F2_MoreThan65535Sequences) {
  std::vector<int32_t> sums(80001);
  for (size_t n = 0; n < sums.size(); ++n) sums[n] = static_cast<int32_t>(2 * n);
  Case c(packed(Dtype::bf16, sums, sums, 1, 1, 8));
  ASSERT_TRUE(c.run_backward().ok());
  oracle::Problem p = c.oracle_problem();
  p.sequences = {p.sequences[0], p.sequences[65536], p.sequences[79999]};
  const oracle::Verdict verdict =
      oracle::judge_backward(p, c.grad_out.oracle(), c.grad_query.oracle(), c.grad_key.oracle(), c.grad_value.oracle());
  EXPECT_TRUE(verdict.ok) << verdict.text;
}

TEST(CasesBackward, G1_GradientsWithOtherStridesThanTheOutput) {
  const Config config = shape(Dtype::bf16, 2, 32, 32, 4, 1, 128);
  Case contiguous(config), strided(config);
  contiguous.check_backward();
  strided.grad_out = Tensor(config.dtype, {2, 32, 4, 128}, Layout::head_major);
  for (int64_t b = 0; b < 2; ++b) strided.grad_out.fill_normal(b, 0, 32, 3 * config.seed + 1000003);
  strided.check_backward();
  EXPECT_EQ(strided.grad_query.content(), contiguous.grad_query.content());
  EXPECT_EQ(strided.grad_key.content(), contiguous.grad_key.content());
  EXPECT_EQ(strided.grad_value.content(), contiguous.grad_value.content());
}

TEST(CasesBackward, G1_ABroadcastGradient) {
  const Config config = shape(Dtype::fp32, 2, 32, 32, 4, 1, 128);
  Case c(config);
  c.grad_out = Tensor(config.dtype, {2, 32, 4, 128}, std::vector<int64_t>{0, 0, 0, 1});
  c.grad_out.fill_normal(0, 0, 1, 9);
  c.check_backward();
}

// Reduced from s513 h16 to s129 h4.
TEST(CasesBackward, G5_ValuesStoredOtherwiseThanKeys) {
  const Config config = shape(Dtype::bf16, 2, 129, 129, 4, 4, 64);
  for (Layout layout : {Layout::head_major, Layout::gaps}) {
    Case c(config);
    c.value = Tensor(config.dtype, {2, 129, 4, 64}, layout);
    for (int64_t b = 0; b < 2; ++b) c.value.fill_normal(b, 0, 129, 44);
    c.check_backward();
  }
}

TEST(CasesBackward, G6_SlicesOfAFusedProjection) {
  constexpr int64_t s = 128, dim = 256, heads = 4 + 2 + 2;
  const Config config = shape(Dtype::bf16, 1, s, s, 4, 2, dim, true);
  Case copies(config), sliced(config);
  copies.check_backward();
  Tensor fused(Dtype::bf16, {1, s, heads, dim}), gradients(Dtype::bf16, {1, s, heads, dim});
  for (int64_t i = 0; i < s; ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      const Tensor& from = h < 4 ? copies.query : (h < 6 ? copies.key : copies.value);
      for (int64_t c = 0; c < dim; ++c) {
        fused.set({0, i, h, c}, static_cast<float>(from.get({0, i, h < 4 ? h : h % 2, c})));
      }
    }
  }
  const auto slice = [&](const Tensor& of, int64_t head, int64_t count) {
    tandem::TensorView view = of.view();
    view.spec.size[2] = count;
    view.data = static_cast<uint16_t*>(view.data) + head * dim;
    return view;
  };
  tandem::Problem p = sliced.backward_problem();
  tandem::Arguments a = sliced.backward_arguments();
  p.query = (a.query = slice(fused, 0, 4)).spec;
  p.key = (a.key = slice(fused, 4, 2)).spec;
  p.value = (a.value = slice(fused, 6, 2)).spec;
  p.grad_query = (a.grad_query = slice(gradients, 0, 4)).spec;
  p.grad_key = (a.grad_key = slice(gradients, 4, 2)).spec;
  p.grad_value = (a.grad_value = slice(gradients, 6, 2)).spec;
  a.out = copies.out.view();
  a.lse = copies.lse.view();
  ASSERT_TRUE(testing_support::run(tandem::Pass::backward, p, a).ok());
  for (int64_t i = 0; i < s; ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      const Tensor& wanted = h < 4 ? copies.grad_query : (h < 6 ? copies.grad_key : copies.grad_value);
      for (int64_t c = 0; c < dim; ++c) {
        ASSERT_EQ(gradients.get({0, i, h, c}), wanted.get({0, i, h < 4 ? h : h % 2, c}));
      }
    }
  }
  EXPECT_TRUE(gradients.guards_intact());
}

TEST(CasesBackward, K3_LengthsOffTheTileGrid) {
  const int64_t lengths[] = {1, 63, 65, 113, 127, 129, 191, 193, 255, 257};
  for (size_t n = 0; n < std::size(lengths); ++n) {
    const int64_t dims[] = {64, 96, 128};
    Case(shape(Dtype::bf16, 1, lengths[n], lengths[n], 1, 1, dims[n % 3], n % 2 == 0)).check_backward();
    Case(shape(Dtype::fp16, 1, lengths[n], lengths[(n + 3) % 10], 1, 1, dims[(n + 1) % 3], n % 2 == 1))
        .check_backward();
  }
}

TEST(CasesBackward, K4_GroupsOfHeads) {
  for (const auto& [query_heads, key_heads] : {std::pair{12, 3}, std::pair{6, 6}, std::pair{8, 1}}) {
    Case(shape(Dtype::bf16, 1, 50, 70, query_heads, key_heads, 64, true)).check_backward();
  }
}

// The sum over a group's heads stays in float32: terms of alternating sign must cancel there.
TEST(CasesBackward, K5_ManyHeadsOfAlternatingSign) {
  Case c(shape(Dtype::bf16, 1, 32, 32, 64, 1, 64));
  for (int64_t i = 0; i < 32; ++i) {
    for (int64_t h = 0; h < 64; ++h) {
      for (int64_t column = 0; column < 64; ++column) {
        c.grad_out.set({0, i, h, column}, h % 2 == 0 ? 1.0f : -1.0f);
      }
    }
  }
  c.check_backward();
}

TEST(CasesBackward, K6_BatchMatesDoNotMatter) {
  Config config = shape(Dtype::bf16, 5, 77, 130, 4, 2, 64, true);
  Case batch(config);
  ASSERT_TRUE(batch.run_backward().ok());
  config.batch = 1;
  Case alone(config);  // sequence 0 has the same data
  ASSERT_TRUE(alone.run_backward().ok());
  for (auto part : {&Case::grad_query, &Case::grad_key, &Case::grad_value}) {
    const std::vector<uint8_t> bits = (alone.*part).content(), of_all = (batch.*part).content();
    EXPECT_TRUE(std::equal(bits.begin(), bits.end(), of_all.begin()));
  }
}

TEST(CasesBackward, K7_ValueDimsThatDiffer) {
  Config config = shape(Dtype::bf16, 1, 70, 90, 2, 1, 192, true);
  config.value_dim = 128;
  Case(config).check_backward();
  config.head_dim = 64;
  Case(config).check_backward();
}

}  // namespace
