// Strided tensors and their guard words.
#include "tools/tensor.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "tools/job.hpp"

namespace tandem::tools {
namespace {

Array counting(std::vector<int64_t> shape) {
  std::vector<float> values(static_cast<size_t>(count_elements(shape, "test")));
  std::iota(values.begin(), values.end(), 0.0F);
  return array_of(values, std::move(shape));
}

TEST(Tensor, KeepsItsElementsInEveryLayout) {
  for (const Layout layout : {Layout::row_major, Layout::head_major, Layout::padded}) {
    for (const auto& shape : {std::vector<int64_t>{2, 5, 3, 8}, {7, 3, 8}, {4}, {0, 3, 8}}) {
      const Array array = counting(shape);
      const Tensor tensor = tensor_of(array, layout);
      EXPECT_EQ(array_of(tensor).bytes, array.bytes);
      EXPECT_EQ(array_of(tensor).shape, shape);
      EXPECT_TRUE(guards_intact(tensor));
      EXPECT_EQ(tensor.spec.stride[shape.size() - 1], 1);
    }
  }
}

TEST(Tensor, LayoutsDiffer) {
  EXPECT_EQ(poisoned(Dtype::bf16, {2, 5, 3, 8}, Layout::head_major).spec.stride[1], 8);
  EXPECT_EQ(poisoned(Dtype::bf16, {2, 5, 3, 8}, Layout::head_major).spec.stride[2], 40);
  EXPECT_EQ(poisoned(Dtype::bf16, {2, 5, 3, 8}, Layout::padded).spec.stride[1], 24 + 64);
}

TEST(Tensor, NoticesEveryByteWrittenOutside) {
  Tensor tensor = poisoned(Dtype::fp16, {2, 3, 2, 8}, Layout::padded);
  const Bytes before = tensor.bytes;
  size_t noticed = 0;
  for (std::byte& byte : tensor.bytes) {
    byte = std::byte{0};
    if (!guards_intact(tensor)) ++noticed;
    byte = poison;
  }
  EXPECT_EQ(noticed, before.size() - 2 * 3 * 2 * 8 * 2);
}

TEST(Job, CountsVisibleScores) {
  Job job;
  job.query = tensor_of(counting({1, 4, 2, 8}));
  job.key = job.value = tensor_of(counting({1, 6, 1, 8}));
  EXPECT_EQ(visible_scores(job), 2 * 4 * 6);
  job.problem.mask.causal = true;
  EXPECT_EQ(visible_scores(job), 2 * (3 + 4 + 5 + 6));
  job.problem.mask.left = 1;
  EXPECT_EQ(visible_scores(job), 2 * (2 + 2 + 2 + 2));
  EXPECT_EQ(flop(job), 16 * 2 * 16);
}

TEST(Job, TakesLengthsFromItsTensors) {
  const auto lengths = [](std::vector<int32_t> values) {
    Array array{Dtype::int32, {static_cast<int64_t>(values.size())}, Bytes(values.size() * 4)};
    std::copy_n(reinterpret_cast<const std::byte*>(values.data()), array.bytes.size(), array.bytes.begin());
    return tensor_of(array);
  };
  Job job;
  job.query = tensor_of(counting({10, 2, 8}));
  job.key = job.value = tensor_of(counting({12, 2, 8}));
  job.cu_query = lengths({0, 3, 10});
  job.cu_key = lengths({0, 12, 12});
  job.used_key = lengths({5, 0});
  const Sequences s = sequences(job);
  EXPECT_EQ(s.batch, 2);
  EXPECT_EQ(s.query_begin, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(s.query_count, (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(s.key_count, (std::vector<int64_t>{5, 0}));
  const Problem problem = problem_of(job, cpu());
  EXPECT_EQ(problem.lengths.batch, 2);
  EXPECT_EQ(problem.lengths.max_query, 7);
  EXPECT_EQ(problem.lengths.max_key, 12);
  EXPECT_TRUE(problem.lengths.used_key);
  EXPECT_FALSE(problem.lengths.used_query);
}

}  // namespace
}  // namespace tandem::tools
