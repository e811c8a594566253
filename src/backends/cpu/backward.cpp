// The CPU's backward kernels: FA-1 Algorithm 4 with its two sums taken apart. A query tile walks the keys that it sees
// and sums dQ; a key tile walks the query rows that see it and sums dK and dV. Both recompute the probabilities from
// the log-sum-exp. That is seven matrix products where the single walk needs five, but no thread waits for another,
// nothing is accumulated in memory that grows with the problem, and each sum has one fixed order, so that every result
// is bitwise the same whatever the number of threads.
#include "backends/cpu/kernels.hpp"
#include "backends/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/backward.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "backends/cpu/kernels-inl.hpp"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::internal::cpu::HWY_NAMESPACE {
namespace {

/// Where the parts of both kernels' state lie in a thread's scratch.
struct State {
  int64_t head_width, value_width;
  float *query, *grad_out, *lse, *delta;               // of the query tile
  float *key_columns, *value_columns, *key, *staging;  // of the key block; `columns` are transposed
  float *probabilities, *grad_scores;                  // rows x key_block
  float *grad_query, *grad_key, *grad_value;           // the sums

  State(const Attention& a, int64_t rows, Scratch& scratch)
      : head_width(padded(a.head_dim)), value_width(padded(a.value_dim)) {
    query = scratch.take(rows * head_width);
    grad_out = scratch.take(rows * value_width);
    lse = scratch.take(rows);
    delta = scratch.take(rows);
    key_columns = scratch.take(head_width * key_block);
    value_columns = scratch.take(value_width * key_block);
    key = scratch.take(key_block * head_width);
    staging = scratch.take(4 * std::max(head_width, value_width));
    probabilities = scratch.take(rows * key_block);
    grad_scores = scratch.take(rows * key_block);
    // A thread sums dQ or, in another unit of work, dK and dV.
    grad_query = grad_key = scratch.take(std::max(rows, key_block) * head_width);
    grad_value = scratch.take(key_block * value_width);
  }
};

/// Loads the rows of a query tile, with D = rowsum(dO * O) (Algorithm 4, line 4).
HWY_INLINE void load_queries(const Job& job, const QueryTile& tile, const State& state) {
  const Attention& a = *job.attention;
  float* out = state.staging;
  for (int64_t r = 0; r < tile.rows(); ++r) {
    float* gradient = state.grad_out + r * state.value_width;
    load_row(a.dtype, job.query.data, tile.offset(job.query, r), a.head_dim, 1.0f, state.query + r * state.head_width);
    load_row(a.dtype, job.grad_out.data, tile.offset(job.grad_out, r), a.value_dim, 1.0f, gradient);
    load_row(a.dtype, job.out.data, tile.offset(job.out, r), a.value_dim, 1.0f, out);
    state.lse[r] = static_cast<const float*>(job.lse.data)[tile.offset(job.lse, r)];
    const Floats d;
    Vector sum = hn::Zero(d);
    for (int64_t c = 0; c < state.value_width; c += lanes) {
      sum = hn::MulAdd(hn::Load(d, gradient + c), hn::Load(d, out + c), sum);
    }
    state.delta[r] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

HWY_INLINE void load_keys(const Job& job, const Tile& tile, const Block& block, const State& state) {
  const Attention& a = *job.attention;
  const int64_t first = tile.sequence.first_key + block.first, columns = whole_chunks(block.end);
  load_transposed(
      a.dtype, job.key.data, [&](int64_t j) { return job.key.offset(tile.batch, first + j, tile.key_head); },
      a.head_dim, block.begin, block.end, columns, state.staging, state.key_columns);
  load_transposed(
      a.dtype, job.value.data, [&](int64_t j) { return job.value.offset(tile.batch, first + j, tile.key_head); },
      a.value_dim, block.begin, block.end, columns, state.staging, state.value_columns);
}

/// P = exp(S - LSE) and dS = P * (dP - D) for one row (Algorithm 4, lines 13 and 15), 0 where the row sees nothing.
HWY_INLINE void differentiate_row(const Attention& a, const State& state, int64_t row, int64_t begin, int64_t end,
                                  int64_t columns) {
  const Floats d;
  float* scores = state.probabilities + row * key_block;
  float* gradients = state.grad_scores + row * key_block;
  const Vector scale = hn::Set(d, a.scale), lse = hn::Set(d, state.lse[row]), delta = hn::Set(d, state.delta[row]);
  const Vector one = hn::Set(d, 1.0f), log2_e = hn::Set(d, 1.44269504088896340736f), zero = hn::Zero(d);
  const Vector cap = hn::Set(d, a.softcap), inverse_cap = hn::Set(d, a.softcap > 0 ? a.scale / a.softcap : 0.0f);
  for (int64_t c = 0; c < columns; c += lanes) {
    Vector score = hn::Load(d, scores + c), slope = one, exponent;
    if (a.softcap > 0) {
      const Vector t = hn::Tanh(d, hn::Mul(score, inverse_cap));
      slope = hn::NegMulAdd(t, t, one);
      exponent = hn::MulSub(t, cap, lse);
    } else {
      exponent = hn::MulSub(score, scale, lse);
    }
    // A probability is at most 1; for huge scores the rounding of the log-sum-exp would say otherwise.
    exponent = hn::IfThenElse(hn::Gt(exponent, zero), zero, exponent);
    const Vector p = exp2(hn::Mul(exponent, log2_e));
    hn::Store(p, d, scores + c);
    hn::Store(hn::Mul(hn::Mul(p, slope), hn::Sub(hn::Load(d, gradients + c), delta)), d, gradients + c);
  }
  for (float* values : {scores, gradients}) {
    std::fill(values, values + begin, 0.0f);
    if (end < columns) std::fill(values + end, values + columns, 0.0f);
  }
}

/// S = Q K^T and dP = dO V^T, then P and dS, for the rows of a query tile that see a part of the block.
HWY_INLINE void differentiate(const Attention& a, const QueryTile& tile, const Block& block, const State& state) {
  const int64_t first = block.rows.begin, rows = block.rows.end - first, columns = whole_chunks(block.end);
  multiply({state.query + first * state.head_width, state.head_width, 1, state.key_columns, key_block,
            state.probabilities + first * key_block, key_block},
           rows, columns, a.head_dim);
  multiply({state.grad_out + first * state.value_width, state.value_width, 1, state.value_columns, key_block,
            state.grad_scores + first * key_block, key_block},
           rows, columns, a.value_dim);
  for (int64_t r = block.rows.begin; r < block.rows.end; ++r) {
    const Range seen = tile.seen(r);
    differentiate_row(a, state, r, std::max<int64_t>(seen.begin - block.first, 0),
                      std::min<int64_t>(seen.end - block.first, block.end), columns);
  }
}

void query_tile_kernel(const Job& job, const Tile& queries, float* memory) {
  const Attention& a = *job.attention;
  const QueryTile tile(job, queries);
  Scratch scratch(memory);
  const State state(a, queries.rows, scratch);
  std::fill(state.grad_query, state.grad_query + queries.rows * state.head_width, 0.0f);
  const Range seen = tile.seen();
  if (seen.begin < seen.end) load_queries(job, tile, state);
  for_each_block(tile, [&](const Block& block) {
    const auto& [first, begin, end, rows] = block;
    load_keys(job, queries, block, state);
    for (int64_t j = begin; j < end; ++j) {
      load_row(a.dtype, job.key.data,
               job.key.offset(queries.batch, queries.sequence.first_key + first + j, queries.key_head), a.head_dim,
               1.0f, state.key + j * state.head_width);
    }
    differentiate(a, tile, block, state);
    multiply({state.grad_scores + rows.begin * key_block + begin, key_block, 1, state.key + begin * state.head_width,
              state.head_width, state.grad_query + rows.begin * state.head_width, state.head_width, Start::add},
             rows.end - rows.begin, state.head_width, end - begin);
  });
  for (int64_t r = 0; r < queries.rows; ++r) {
    store_row(a.dtype, job.grad_query.data, tile.offset(job.grad_query, r), a.head_dim, a.scale,
              state.grad_query + r * state.head_width);
  }
}

/// Adds what the rows of a query tile give to the sums of a key tile: dV += P^T dO, dK += dS^T Q (lines 12 and 17).
HWY_INLINE void add_queries(const Job& job, const QueryTile& tile, const Block& block, const State& state) {
  load_queries(job, tile, state);
  differentiate(*job.attention, tile, block, state);
  const int64_t first = block.rows.begin, rows = block.rows.end - first;
  multiply({state.probabilities + first * key_block, 1, key_block, state.grad_out + first * state.value_width,
            state.value_width, state.grad_value, state.value_width, Start::add},
           block.end, state.value_width, rows);
  multiply({state.grad_scores + first * key_block, 1, key_block, state.query + first * state.head_width,
            state.head_width, state.grad_key, state.head_width, Start::add},
           block.end, state.head_width, rows);
}

void key_tile_kernel(const Job& job, const Tile& keys, int64_t tile_rows, float* memory) {
  const Attention& a = *job.attention;
  Scratch scratch(memory);
  const State state(a, tile_rows, scratch);
  std::fill(state.grad_key, state.grad_key + keys.rows * state.head_width, 0.0f);
  std::fill(state.grad_value, state.grad_value + keys.rows * state.value_width, 0.0f);
  Block block{keys.first, 0, keys.rows, {}};
  load_keys(job, keys, block, state);
  const int64_t rows = keys.sequence.queries * a.group();
  for (int64_t first = 0; first < rows; first += tile_rows) {
    const Tile queries{keys.batch, keys.key_head, keys.sequence, first, std::min(tile_rows, rows - first)};
    const QueryTile tile(job, queries);
    const Range seen = tile.seen();
    if (seen.begin >= keys.first + keys.rows || seen.end <= keys.first) continue;
    block.rows = tile.rows_that_see(keys.first, keys.first + keys.rows);
    if (block.rows.begin < block.rows.end) add_queries(job, tile, block, state);
  }
  for (int64_t j = 0; j < keys.rows; ++j) {
    const int64_t row = keys.sequence.first_key + keys.first + j;
    store_row(a.dtype, job.grad_key.data, job.grad_key.offset(keys.batch, row, keys.key_head), a.head_dim, a.scale,
              state.grad_key + j * state.head_width);
    store_row(a.dtype, job.grad_value.data, job.grad_value.offset(keys.batch, row, keys.key_head), a.value_dim, 1.0f,
              state.grad_value + j * state.value_width);
  }
}

size_t scratch_size(const Attention& a, int64_t rows) {
  Scratch scratch;
  const State state(a, rows, scratch);
  return scratch.used();
}

}  // namespace
}  // namespace tandem::internal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::internal::cpu {
HWY_EXPORT(query_tile_kernel);
HWY_EXPORT(key_tile_kernel);
HWY_EXPORT(scratch_size);

size_t backward_scratch(const Attention& a, int64_t rows) { return HWY_DYNAMIC_DISPATCH(scratch_size)(a, rows); }

void backward_query_tile(const Job& job, const Tile& queries, float* scratch) {
  HWY_DYNAMIC_DISPATCH(query_tile_kernel)(job, queries, scratch);
}

void backward_key_tile(const Job& job, const Tile& keys, int64_t tile_rows, float* scratch) {
  HWY_DYNAMIC_DISPATCH(key_tile_kernel)(job, keys, tile_rows, scratch);
}

}  // namespace tandem::internal::cpu
#endif
