// Problems on a GPU that needn't exist, resolved as tandem::plan() resolves them.
#pragma once

#include <gtest/gtest.h>

#include "plan/forward_sm90.hpp"

namespace tandem::internal {

constexpr sm90::DeviceTraits h200{132};

/// (batch, rows, heads, dim) of query, key, value.
inline Problem dense(int64_t batch, int64_t queries, int64_t keys, int64_t query_heads, int64_t key_heads, int64_t dim,
                     int64_t value_dim, Dtype dtype = Dtype::bf16) {
  Problem problem;
  problem.query = contiguous(dtype, cuda(0), {batch, queries, query_heads, dim});
  problem.key = contiguous(dtype, cuda(0), {batch, keys, key_heads, dim});
  problem.value = contiguous(dtype, cuda(0), {batch, keys, key_heads, value_dim});
  return problem;
}
inline Problem dense(int64_t batch, int64_t rows, int64_t heads, int64_t dim) {
  return dense(batch, rows, rows, heads, heads, dim, dim);
}

inline Problem packed(int64_t sequences, int64_t total_query, int64_t total_key, int64_t heads, int64_t dim) {
  Problem problem;
  problem.query = contiguous(Dtype::bf16, cuda(0), {total_query, heads, dim});
  problem.key = problem.value = contiguous(Dtype::bf16, cuda(0), {total_key, heads, dim});
  problem.lengths.batch = sequences;
  problem.lengths.packed_query = problem.lengths.packed_key = true;
  return problem;
}

inline Attention resolved(const Problem& problem) {
  const Result<Attention> attention = resolve(Pass::forward, problem);
  EXPECT_TRUE(attention.ok()) << attention.status().argument << ": " << attention.status().message;
  return attention.ok() ? *attention : Attention{};
}

inline Result<ForwardPlan> planned(const Problem& problem) { return plan_forward_sm90(resolved(problem), h200); }

}  // namespace tandem::internal
