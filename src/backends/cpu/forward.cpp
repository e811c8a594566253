// The CPU's forward kernel: FA-1 Algorithm 1 over one query tile. Key blocks are the outer loop's work, the online
// softmax keeps a maximum, a sum and an unnormalised output row per query; scores never leave the tile.
#include "backends/cpu/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/forward.cpp"
#include "backends/cpu/targets.hpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/kernels-inl.hpp"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::internal::cpu::HWY_NAMESPACE {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float log2_e = 1.44269504088896340736f, most = std::numeric_limits<float>::max();

/// Where the parts of a tile's state lie in its scratch.
struct State {
  int64_t head_width, value_width;
  float *query, *out, *scores, *key, *value, *staging, *maximum, *sum, *factor;

  State(const Attention& a, int64_t rows, Scratch& scratch)
      : head_width(padded(a.head_dim)), value_width(padded(a.value_dim)) {
    query = scratch.take(rows * head_width);
    out = scratch.take(rows * value_width);
    scores = scratch.take(rows * key_block);
    key = scratch.take(head_width * key_block);
    value = scratch.take(key_block * value_width);
    staging = scratch.take(4 * head_width);
    maximum = scratch.take(rows);
    sum = scratch.take(rows);
    factor = scratch.take(rows);
  }
};

/// The tile, and the problem's scale as the kernel uses it: its sign is folded into the query, so that the largest
/// score is the largest product; a scale of 0 makes all products 0 (a NaN stays one).
struct View {
  const Job& job;
  const Attention& a;
  QueryTile tile;
  float sign, scale;

  View(const Job& j, const Tile& t) : job(j), a(*j.attention), tile(j, t) {
    sign = a.scale > 0 ? 1.0f : (a.scale < 0 ? -1.0f : 0.0f);
    scale = a.scale == 0 ? 1.0f : std::abs(a.scale);
  }
};

/// The scores of a row become probabilities up to a factor; its maximum, sum and rescaling factor are brought up to
/// date (Algorithm 1, lines 10 and 11).
HWY_INLINE void softmax_row(const View& view, const Block& block, const State& state, int64_t row, int64_t columns) {
  const Floats d;
  float* scores = state.scores + row * key_block;
  float scale = view.scale;
  if (const float cap = view.a.softcap; cap > 0) {
    const Vector inner = hn::Set(d, scale / cap), outer = hn::Set(d, cap);
    for (int64_t c = 0; c < columns; c += lanes) {
      hn::Store(hn::Mul(outer, hn::Tanh(d, hn::Mul(hn::Load(d, scores + c), inner))), d, scores + c);
    }
    scale = 1;
  }
  const Range seen = view.tile.seen(row);
  const int64_t begin = std::max<int64_t>(seen.begin - block.first, 0);
  const int64_t end = std::min<int64_t>(seen.end - block.first, key_block);
  std::fill(scores, scores + begin, -infinity);
  if (end < columns) std::fill(scores + end, scores + columns, -infinity);

  Vector largest = hn::Load(d, scores);
  for (int64_t c = lanes; c < columns; c += lanes) largest = hn::Max(largest, hn::Load(d, scores + c));
  const float before = state.maximum[row];
  const float maximum = std::max(before, hn::GetLane(hn::MaxOfLanes(d, largest)));
  // Until a finite score is met the reference is 0: then a row of NaN gives NaN, and not the exponential of nothing.
  const float reference = maximum == -infinity ? 0 : maximum;
  const Vector origin = hn::Set(d, reference), slope = hn::Set(d, std::clamp(scale * log2_e, -most, most));
  Vector sum = hn::Zero(d);
  for (int64_t c = 0; c < columns; c += lanes) {
    // The difference first: equal scores then give exactly 1, however large they are.
    const Vector p = exp2(hn::Mul(hn::Sub(hn::Load(d, scores + c), origin), slope));
    sum = hn::Add(sum, p);
    hn::Store(p, d, scores + c);
  }
  const float factor = before == -infinity ? 0 : (before == maximum ? 1 : std::exp((before - maximum) * scale));
  state.factor[row] = factor;
  state.maximum[row] = maximum;
  state.sum[row] = state.sum[row] * factor + hn::GetLane(hn::SumOfLanes(d, sum));
}

/// Algorithm 1, lines 6 to 13, for one key block.
HWY_INLINE void visit(const View& view, const Block& block, const State& state) {
  const Attention& a = view.a;
  const Tile& tile = view.tile.tile();
  const Matrix &key = view.job.key, &value = view.job.value;
  const int64_t first = tile.sequence.first_key + block.first, columns = whole_chunks(block.end);
  load_transposed(
      a.dtype, key.data, [&](int64_t j) { return key.offset(tile.batch, first + j, tile.key_head); }, a.head_dim,
      block.begin, block.end, columns, state.staging, state.key);
  for (int64_t j = block.begin; j < block.end; ++j) {
    load_row(a.dtype, value.data, value.offset(tile.batch, first + j, tile.key_head), a.value_dim, 1.0f,
             state.value + j * state.value_width);
  }
  const int64_t first_row = block.rows.begin, rows = block.rows.end - block.rows.begin;
  float* scores = state.scores + first_row * key_block;
  multiply({state.query + first_row * state.head_width, state.head_width, 1, state.key, key_block, scores, key_block},
           rows, columns, a.head_dim);
  for (int64_t r = block.rows.begin; r < block.rows.end; ++r) softmax_row(view, block, state, r, columns);
  multiply({scores + block.begin, key_block, 1, state.value + block.begin * state.value_width, state.value_width,
            state.out + first_row * state.value_width, state.value_width, Start::add, state.factor + first_row},
           rows, state.value_width, block.end - block.begin);
}

/// Divides by the sum, which the sink joins, and writes output and log-sum-exp (Algorithm 1, lines 12 and 13).
HWY_INLINE void finish_row(const View& view, const State& state, int64_t row) {
  const Job& job = view.job;
  const Range seen = view.tile.seen(row);
  float factor = 0;
  double lse = -infinity;
  if (seen.begin < seen.end) {
    const double maximum = static_cast<double>(state.maximum[row]) * (view.a.softcap > 0 ? 1.0 : view.scale);
    double sum = state.sum[row], weight = 1, reference = maximum;
    if (job.sinks != nullptr) {
      const double sink = job.sinks[view.tile.head(row)];
      reference = std::max(maximum, sink);
      weight = std::exp(maximum - reference);
      sum = sum * weight + std::exp(sink - reference);
    }
    factor = static_cast<float>(weight / sum);
    lse = reference + std::log(sum);
  }
  store_row(view.a.dtype, job.out.data, view.tile.offset(job.out, row), view.a.value_dim, factor,
            state.out + row * state.value_width);
  if (job.lse.data != nullptr) {
    static_cast<float*>(job.lse.data)[view.tile.offset(job.lse, row)] = static_cast<float>(lse);
  }
}

void forward_tile_kernel(const Job& job, const Tile& tile, float* memory) {
  const View view(job, tile);
  Scratch scratch(memory);
  const State state(view.a, tile.rows, scratch);
  for (int64_t r = 0; r < tile.rows; ++r) {
    load_row(view.a.dtype, job.query.data, view.tile.offset(job.query, r), view.a.head_dim, view.sign,
             state.query + r * state.head_width);
  }
  std::fill(state.out, state.out + tile.rows * state.value_width, 0.0f);
  std::fill(state.maximum, state.maximum + tile.rows, -infinity);
  std::fill(state.sum, state.sum + tile.rows, 0.0f);
  for_each_block(view.tile, [&](const Block& block) { visit(view, block, state); });
  for (int64_t r = 0; r < tile.rows; ++r) finish_row(view, state, r);
}

size_t scratch_size(const Attention& a, int64_t rows) {
  Scratch scratch;
  const State state(a, rows, scratch);
  return scratch.used();
}

const char* instruction_set_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace tandem::internal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::internal::cpu {
HWY_EXPORT(forward_tile_kernel);
HWY_EXPORT(scratch_size);
HWY_EXPORT(instruction_set_name);

size_t forward_scratch(const Attention& a, int64_t rows) { return HWY_DYNAMIC_DISPATCH(scratch_size)(a, rows); }

void forward_tile(const Job& job, const Tile& queries, float* scratch) {
  HWY_DYNAMIC_DISPATCH(forward_tile_kernel)(job, queries, scratch);
}

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(instruction_set_name)(); }

}  // namespace tandem::internal::cpu
#endif
