// Tensors as they lie in others' memory: slices of fused projections, misaligned views, strides of 0.
#include "gpu/support.hpp"

namespace tandem::testing {
namespace {

class GpuStrides : public Gpu {
 protected:
  /// The same job with contiguous copies of its inputs gives the same bytes.
  void expect_as_contiguous(Job job) {
    Job copy = job;
    for (Tensor Job::*tensor : {&Job::query, &Job::key, &Job::value})
      copy.*tensor = tools::tensor_of(tools::array_of(job.*tensor));
    copy.out = tools::poisoned(job.out.spec.dtype, tools::shape_of(job.out.spec));
    run_and_judge(job);
    run(copy);
    EXPECT_TRUE(same(job.out, copy.out));
    EXPECT_TRUE(same(job.lse, copy.lse));
  }
};

/// Outputs for inputs that are set by hand.
Job with_outputs(Tensor query, Tensor key, Tensor value, Mask mask = {}) {
  Job job;
  job.problem.mask = mask;
  const auto& size = query.spec.size;
  job.out = tools::poisoned(query.spec.dtype, {size[0], size[1], size[2], value.spec.size[3]});
  job.lse = tools::poisoned(Dtype::fp32, {size[0], size[2], size[1]});
  job.query = std::move(query);
  job.key = std::move(key);
  job.value = std::move(value);
  return job;
}

TEST_F(GpuStrides, G3_PackedQkvForOneKeyHead) {
  for (const int64_t batch : {1, 2}) {
    const Array qkv = quick_array({2048, batch, 18, 64}, Dtype::fp16, 5);  // (seqlen, batch, heads, dim)
    const auto part = [&](int64_t first_head, int64_t heads) {
      return view_of(qkv, {batch, 2048, heads, 64}, {18 * 64, batch * 18 * 64, 64, 1}, first_head * 64);
    };
    expect_as_contiguous(with_outputs(part(0, 16), part(16, 1), part(17, 1), causal_mask()));
  }
}

TEST_F(GpuStrides, MisalignedInputs) {
  const Array buffer = quick_array({1 << 20}, Dtype::bf16, 6);
  for (const int64_t offset : {1, 2, 4}) {
    const auto at = [&](int64_t rows, int64_t heads, int64_t from) {
      return view_of(buffer, {2, rows, heads, 72}, {rows * heads * 72, heads * 72, 72, 1}, from + offset);
    };
    expect_as_contiguous(with_outputs(at(200, 4, 0), at(310, 2, 200000), at(310, 2, 400000), causal_mask()));
  }
}

TEST_F(GpuStrides, OddStrides) {
  const Array buffer = quick_array({1 << 20}, Dtype::bf16, 7);
  const auto odd = [&](int64_t rows, int64_t heads, int64_t from) {
    return view_of(buffer, {2, rows, heads, 128}, {rows * (heads * 131 + 1), heads * 131 + 1, 131, 1}, from);
  };
  expect_as_contiguous(with_outputs(odd(150, 4, 0), odd(270, 2, 200000), odd(270, 2, 400000)));
}

TEST_F(GpuStrides, StrideOfZero) {
  const Array one = quick_array({300, 2, 128}, Dtype::bf16, 8);
  const Tensor shared_by_batch = view_of(one, {3, 300, 2, 128}, {0, 256, 128, 1}, 0);
  const Tensor shared_by_heads = view_of(one, {3, 300, 2, 128}, {0, 256, 0, 1}, 128);
  const Tensor query = tools::tensor_of(quick_array({3, 100, 4, 128}, Dtype::bf16, 9));
  expect_as_contiguous(with_outputs(query, shared_by_batch, shared_by_heads, causal_mask()));
}

TEST_F(GpuStrides, MisalignedOutput) {
  Job job = make_job({.batch = 2, .queries = 300, .keys = 200, .query_heads = 3, .key_heads = 3, .head_dim = 64});
  Job aligned = job;
  job.out.first += 2;
  job.out.spec.alignment = 2;
  run_and_judge(job);
  run(aligned);
  EXPECT_TRUE(same(job.out, aligned.out));
}

TEST_F(GpuStrides, UsedLengthsWithBatchesAtOddDistances) {
  const Array buffer = quick_array({1 << 20}, Dtype::bf16, 10);
  const auto apart = [&](int64_t rows, int64_t from) {  // no whole number of rows between batch entries
    return view_of(buffer, {3, rows, 2, 64}, {rows * 128 + 8, 128, 64, 1}, from);
  };
  Job job = with_outputs(apart(130, 0), apart(200, 100000), apart(200, 300000));
  job.used_key = int32_tensor({200, 0, 77});
  job.used_query = int32_tensor({130, 64, 1});
  expect_as_contiguous(job);
}

}  // namespace
}  // namespace tandem::testing
