// Sizes whose products pass 2^31, grids past 65,535, and tensors that fill gigabytes: sample rows are judged by the
// oracle. (Names: see values_test.cpp.)
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/driver.hpp"
#include "gpu/support.hpp"
#include "oracle/oracle.hpp"
#include "tools/inputs.hpp"

namespace tandem::testing {
namespace {

class GpuSize : public Gpu {};

/// With it a few keys outweigh all others, so that a wrong one shows; an average of millions hides it.
constexpr float sharp = 0.5F;

// --------------------------------------------------------------------------------------- jobs that fit host memory

Job one_token_each(int64_t batch) {
  return make_job({.batch = batch, .queries = 1, .keys = 1, .query_heads = 16, .key_heads = 16});
}

TEST_F(GpuSize, F1_BatchTimesHeadsTimesTilesPast32Bits) {
  Job job = one_token_each(8300);
  run_and_judge(job);
  EXPECT_TRUE(same(job.out, job.value)) << "one key: out is its value";
}

TEST_F(GpuSize, F1_Backward) {
  Job job = one_token_each(8300);
  run(job);
  job.pass = Pass::backward;
  const std::vector<int64_t> shape = {8300, 1, 16, 128};
  job.grad_out = tools::tensor_of(quick_array(shape, Dtype::bf16, 4));
  for (Tensor Job::*tensor : {&Job::grad_query, &Job::grad_key, &Job::grad_value})
    job.*tensor = tools::poisoned(Dtype::bf16, shape);
  if (const auto planned = plan_of(job); !planned.ok()) GTEST_SKIP() << planned.status().message;
  run(job);
  EXPECT_TRUE(same(job.grad_value, job.grad_out)) << "one key: its value's gradient is that of out";
  for (const Tensor* tensor : {&job.grad_query, &job.grad_key})
    for (const float x : values(*tensor)) ASSERT_LT(std::fabs(x), 0.05F);
}

// F4 too: outputs begin as NaN, so that a launch that silently failed would show.
TEST_F(GpuSize, F2_F4_DenseBatchPast65535) {
  Job job = make_job({.batch = 65537, .queries = 4, .keys = 4, .head_dim = 64, .mask = causal_mask()});
  run_and_judge(job);
}

TEST_F(GpuSize, F2_ManySequences) {
  std::vector<int32_t> cumulative(80001);
  for (size_t i = 0; i < cumulative.size(); ++i) cumulative[i] = static_cast<int32_t>(16 * i);
  Job job = make_job({.head_dim = 64, .mask = causal_mask(), .cu_query = cumulative, .cu_key = cumulative});
  run_and_judge(job);
}

TEST_F(GpuSize, F10_OneKeyHeadPastTheCacheBudget) {
  for (const int64_t keys : {32769, 65536}) {
    for (const int64_t queries : {1, 2, 127, 256}) {
      Job job = make_job({.queries = queries, .keys = keys, .query_heads = 4, .mask = causal_mask()});
      job.problem.scale = sharp;
      run_and_judge(job);
    }
  }
}

// --------------------------------------------------------------------------------------- tensors on the GPU alone

/// bf16 elements on the GPU that repeat a random block of a prime number of elements, so that rows differ; any of them
/// can be had on the host.
class Pattern {
 public:
  Pattern(tools::Memory& memory, int64_t count, uint64_t seed)
      : block_(tools::random_array({period}, Dtype::bf16, seed)),
        buffer_(memory, static_cast<size_t>(count) * sizeof(uint16_t)) {
    const size_t all = buffer_.bytes();
    size_t filled = std::min(block_.bytes.size(), all);
    memory.upload(buffer_.data(), block_.bytes.data(), filled);
    for (; filled < all; filled *= 2)
      copy_async(buffer_.data() + filled, buffer_.data(), std::min(filled, all - filled), memory.stream());
    memory.synchronize();
  }
  std::byte* data() const { return buffer_.data(); }
  /// `rows` rows of `columns` elements, `stride` apart.
  std::vector<uint16_t> rows(int64_t first, int64_t stride, int64_t rows, int64_t columns) const {
    std::vector<uint16_t> result;
    result.reserve(static_cast<size_t>(rows * columns));
    const auto* block = reinterpret_cast<const uint16_t*>(block_.bytes.data());
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        result.push_back(block[(first + row * stride + column) % period]);
    return result;
  }

 private:
  static constexpr int64_t period = 1'000'003;
  Array block_;
  tools::Buffer buffer_;
};

/// One tensor of a large problem: (1, rows, heads, 128) with a row stride, from an element of a pattern on.
struct Part {
  const Pattern* pattern;
  int64_t offset, rows, heads, row_stride;

  TensorView view(Device device) const {
    TensorView view;
    view.spec = contiguous(Dtype::bf16, device, {1, rows, heads, 128});
    view.spec.stride = {rows * row_stride, row_stride, 128, 1};
    view.data = pattern->data() + offset * 2;
    return view;
  }
  std::vector<uint16_t> head(int64_t number, int64_t first, int64_t count) const {
    return pattern->rows(offset + first * row_stride + number * 128, row_stride, count, 128);
  }
};

struct Sample {
  int64_t row, head;
};

class GpuLarge : public GpuOnly {
 protected:
  /// Causal attention of one batch entry; the samples must be grouped by head.
  void check_causal(const Part& query, const Part& key, const Part& value, const std::vector<Sample>& samples) {
    const Device device = memory_->device();
    Arguments arguments;
    arguments.query = query.view(device);
    arguments.key = key.view(device);
    arguments.value = value.view(device);
    Problem problem;
    problem.query = arguments.query.spec;
    problem.key = arguments.key.spec;
    problem.value = arguments.value.spec;
    problem.lse = contiguous(Dtype::fp32, device, {1, query.heads, query.rows});
    problem.mask.causal = true;
    problem.scale = sharp;
    auto planned = plan(Pass::forward, problem);
    ASSERT_TRUE(planned.ok()) << planned.status().message;
    const int64_t out_row = query.heads * 128;
    const tools::Buffer out(*memory_, static_cast<size_t>(query.rows * out_row * 2));
    const tools::Buffer lse(*memory_, static_cast<size_t>(query.rows * query.heads * 4));
    const tools::Buffer workspace(*memory_, planned->workspace_bytes());
    fill_async(out.data(), 0xffffffff, out.bytes(), memory_->stream());
    fill_async(lse.data(), 0xffffffff, lse.bytes(), memory_->stream());
    arguments.out = {contiguous(Dtype::bf16, device, {1, query.rows, query.heads, 128}), out.data()};
    arguments.lse = {problem.lse, lse.data()};
    const Status status = planned->run(arguments, workspace.data(), workspace.bytes(), memory_->stream());
    ASSERT_TRUE(status.ok()) << status.message;
    std::vector<uint16_t> keys, values;
    int64_t loaded = -1;
    for (const Sample& sample : samples) {
      const int64_t key_head = sample.head / (query.heads / key.heads);
      if (key_head != loaded) {
        keys = key.head(key_head, 0, key.rows);
        values = value.head(key_head, 0, key.rows);
        loaded = key_head;
      }
      const std::vector<uint16_t> row = query.head(sample.head, sample.row, 1);
      uint16_t result[128];
      float sum = 0;
      memory_->download(result, out.data() + (sample.row * out_row + sample.head * 128) * 2, sizeof result);
      memory_->download(&sum, lse.data() + (sample.head * query.rows + sample.row) * 4, sizeof sum);
      judge_row(row, keys, values, sample.row + key.rows - query.rows, result, sum);
    }
  }

 private:
  static void judge_row(const std::vector<uint16_t>& query, const std::vector<uint16_t>& keys,
                        const std::vector<uint16_t>& values, int64_t diagonal, const uint16_t* out, float lse) {
    const auto rows = static_cast<int64_t>(keys.size() / 128);
    oracle::Problem problem;
    problem.sequences = oracle::dense_sequences(1, 1, rows);
    problem.head_dim = problem.value_dim = 128;
    problem.query = oracle::dense(query.data(), oracle::Type::bf16, 1, 1, 128);
    problem.key = oracle::dense(keys.data(), oracle::Type::bf16, rows, 1, 128);
    problem.value = oracle::dense(values.data(), oracle::Type::bf16, rows, 1, 128);
    problem.scale = sharp;
    problem.causal = true;
    problem.diagonal = diagonal;
    const auto verdict =
        oracle::judge_forward(problem, oracle::all_rows(problem), oracle::dense(out, oracle::Type::bf16, 1, 1, 128),
                              oracle::dense_lse(&lse, 1, 1));
    EXPECT_TRUE(verdict.ok) << "query at key position " << diagonal << ": " << verdict.text;
  }
};

TEST_F(GpuLarge, F8_LongSequenceInAWidePackedQkv) {
  constexpr int64_t rows = 262144, heads = 48, width = heads * 128;
  const Pattern qkv(*memory_, rows * 3 * width, 1);
  const auto part = [&](int64_t offset) { return Part{&qkv, offset, rows, heads, 3 * width}; };
  check_causal(part(0), part(width), part(2 * width),
               {{0, 0}, {1, 0}, {200000, 0}, {rows - 1, 0}, {131072, 47}, {rows - 1, 47}});
}

TEST_F(GpuLarge, F9_MillionsOfKeys) {
  constexpr int64_t rows = 4194304;
  const Pattern queries(*memory_, 2048 * 8 * 128, 2), keys(*memory_, rows * 128, 3), values(*memory_, rows * 128, 4);
  const Part query{&queries, 0, 2048, 8, 8 * 128};
  const auto part = [](const Pattern& pattern, int64_t count) { return Part{&pattern, 0, count, 1, 128}; };
  check_causal(query, part(keys, rows), part(values, rows), {{0, 0}, {2047, 7}});
  check_causal(query, part(keys, rows - 128), part(values, rows - 128), {{1023, 3}});
}

}  // namespace
}  // namespace tandem::testing
