// The CPU's 8-bit forward kernel over one query tile, with the numerics of the Hopper kernel (FA-3 section 3.3): scores
// from 8-bit query and key with their scales, a softmax in float32 whose reference is the first block's maximum and is
// moved only before a probability would leave e4m3, probabilities rounded to e4m3, sums in float32.
#include "backends/cpu/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/forward_fp8.cpp"
#include "backends/cpu/targets.hpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include <cmath>
#include <limits>

#include "backends/cpu/kernels-inl.hpp"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::internal::cpu::HWY_NAMESPACE {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float log2_e = 1.44269504088896340736f;
constexpr double ln_2 = 0.69314718055994530942;
/// A row's reference makes the largest probability of the first block 8, which e4m3 holds exactly: where one key has
/// most of the weight its rounding is most of the error (a reference of a whole exponent costs a third of the accuracy
/// on the paper's distribution). The reference moves to a later block's maximum where one of its probabilities would
/// leave e4m3.
constexpr float headroom = 3, log2_448 = 8.80735492f;

/// Where the parts of a tile's state lie in its scratch.
struct State {
  int64_t head_width, value_width;
  float *query, *out, *scores, *key, *value, *staging, *reference, *sum, *factor, *row_scale;
  float *key_scale, *value_exponent, *value_inverse;  // of each key of the block

  State(const Attention& a, int64_t rows, Scratch& scratch)
      : head_width(padded(a.head_dim)), value_width(padded(a.value_dim)) {
    query = scratch.take(rows * head_width);
    out = scratch.take(rows * value_width);
    scores = scratch.take(rows * key_block);
    key = scratch.take(head_width * key_block);
    value = scratch.take(key_block * value_width);
    staging = scratch.take(4 * head_width);
    for (float** of_rows : {&reference, &sum, &factor, &row_scale}) *of_rows = scratch.take(rows);
    for (float** of_keys : {&key_scale, &value_exponent, &value_inverse}) *of_keys = scratch.take(key_block);
  }
};

struct View {
  const Job& job;
  const Attention& a;
  QueryTile tile;
  bool value_blocks;  // the value's scales differ from key to key, so that they belong to the exponent

  View(const Job& j, const Tile& t) : job(j), a(*j.attention), tile(j, t), value_blocks(j.value_scale.rows > 0) {}
};

/// A score that is NaN may be passed over here: it makes the row NaN all the same.
HWY_INLINE float largest_of(const float* exponents, int64_t columns) {
  const Floats d;
  Vector largest = hn::Set(d, -infinity);
  for (int64_t c = 0; c < columns; c += lanes) largest = hn::Max(largest, hn::Load(d, exponents + c));
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

/// Products become exponents of 2: scaled, capped, masked, with the exponent of the value's scale added.
HWY_INLINE void scale_row(const View& view, const Block& block, const State& state, int64_t row, int64_t columns) {
  const Floats d;
  float* scores = state.scores + row * key_block;
  const float cap = view.a.softcap;
  const Vector factor = hn::Set(d, state.row_scale[row] * (cap > 0 ? 1 / cap : log2_e));
  for (int64_t c = 0; c < columns; c += lanes) {
    Vector s = hn::Mul(hn::Load(d, scores + c), hn::Mul(factor, hn::Load(d, state.key_scale + c)));
    if (cap > 0) s = hn::Mul(hn::Tanh(d, s), hn::Set(d, cap * log2_e));
    hn::Store(hn::Add(s, hn::Load(d, state.value_exponent + c)), d, scores + c);
  }
  const Range seen = view.tile.seen(row);
  const int64_t begin = std::max<int64_t>(seen.begin - block.first, 0);
  const int64_t end = std::min<int64_t>(seen.end - block.first, key_block);
  std::fill(scores, scores + begin, -infinity);
  if (end < columns) std::fill(scores + end, scores + columns, -infinity);
}

/// The exponents of a row become probabilities in e4m3, up to the row's reference, which is moved if it must be.
HWY_INLINE void softmax_row(const State& state, int64_t row, int64_t columns) {
  const Floats d;
  float* scores = state.scores + row * key_block;
  const float before = state.reference[row];
  const float largest = largest_of(scores, columns);
  float& reference = state.reference[row];
  if (before == -infinity || largest - before > log2_448) reference = largest - headroom;
  state.factor[row] = before == -infinity ? 0 : (before == reference ? 1 : std::exp2(before - reference));
  // Until a finite score is met the reference is 0: then a row of NaN gives NaN, and not the exponential of nothing.
  const Vector origin = hn::Set(d, reference == -infinity ? 0 : reference);
  Vector sum = hn::Zero(d);
  for (int64_t c = 0; c < columns; c += lanes) {
    const Vector p = exp2(hn::Sub(hn::Load(d, scores + c), origin));
    sum = hn::MulAdd(p, hn::Load(d, state.value_inverse + c), sum);
    hn::Store(round_e4m3(p), d, scores + c);
  }
  state.sum[row] = state.sum[row] * state.factor[row] + hn::GetLane(hn::SumOfLanes(d, sum));
}

HWY_INLINE void load_scales(const View& view, const Block& block, const State& state, int64_t columns) {
  const Tile& tile = view.tile.tile();
  const int64_t start = tile.sequence.first_key;
  std::fill(state.key_scale, state.key_scale + columns, 1.0f);
  std::fill(state.value_exponent, state.value_exponent + columns, 0.0f);
  std::fill(state.value_inverse, state.value_inverse + columns, 1.0f);
  for (int64_t j = block.begin; j < block.end; ++j) {
    state.key_scale[j] = view.job.key_scale.at(tile.batch, tile.key_head, block.first + j, start);
    if (!view.value_blocks) continue;
    const float scale = view.job.value_scale.at(tile.batch, tile.key_head, block.first + j, start);
    state.value_exponent[j] = std::log2(scale);
    state.value_inverse[j] = 1 / scale;
  }
}

HWY_INLINE void load_packed_value(const View& view, const Block& block, const State& state) {
  const Tile& tile = view.tile.tile();
  const Matrix& value = view.job.value;
  const auto start = static_cast<int32_t>(tile.sequence.first_key);
  const int64_t first = view.a.packed_key ? first_block(start, value_group, static_cast<int32_t>(tile.batch)) : 0;
  for (int64_t j = block.begin; j < block.end; ++j) {
    const int64_t at = block.first + j;
    const uint8_t* from = static_cast<const uint8_t*>(value.data) +
                          value.offset(tile.batch, first + at / value_group, tile.key_head) +
                          packed_place(static_cast<int32_t>(at % value_group));
    float* to = state.value + j * state.value_width;
    for (int64_t c = 0; c < view.a.value_dim; ++c) to[c] = e4m3_table.number[from[c * value_group]];
    std::fill(to + view.a.value_dim, to + state.value_width, 0.0f);
  }
}

HWY_INLINE void load_keys(const View& view, const Block& block, const State& state, int64_t columns) {
  const Tile& tile = view.tile.tile();
  const Matrix &key = view.job.key, &value = view.job.value;
  const int64_t first = tile.sequence.first_key + block.first;
  load_transposed(
      view.a.dtype, key.data, [&](int64_t j) { return key.offset(tile.batch, first + j, tile.key_head); },
      view.a.head_dim, block.begin, block.end, columns, state.staging, state.key);
  load_scales(view, block, state, columns);
  if (view.a.quantization.value_layout == ValueLayout::packed) return load_packed_value(view, block, state);
  for (int64_t j = block.begin; j < block.end; ++j) {
    load_row(Dtype::e4m3, value.data, value.offset(tile.batch, first + j, tile.key_head), view.a.value_dim, 1.0f,
             state.value + j * state.value_width);
  }
}

HWY_INLINE void visit(const View& view, const Block& block, const State& state) {
  const int64_t columns = whole_chunks(block.end);
  load_keys(view, block, state, columns);
  const int64_t first_row = block.rows.begin, rows = block.rows.end - block.rows.begin;
  float* scores = state.scores + first_row * key_block;
  multiply({state.query + first_row * state.head_width, state.head_width, 1, state.key, key_block, scores, key_block},
           rows, columns, view.a.head_dim);
  for (int64_t r = block.rows.begin; r < block.rows.end; ++r) {
    scale_row(view, block, state, r, columns);
    softmax_row(state, r, columns);
  }
  multiply({scores + block.begin, key_block, 1, state.value + block.begin * state.value_width, state.value_width,
            state.out + first_row * state.value_width, state.value_width, Start::add, state.factor + first_row},
           rows, state.value_width, block.end - block.begin);
}

/// What a row is divided by, in which the sink joins, and the part of the softmax that keys have.
struct Normalised {
  float factor = 0, share = 0;
  double lse = -infinity;
};

HWY_INLINE Normalised normalise(const View& view, const State& state, int64_t row) {
  const Range seen = view.tile.seen(row);
  if (seen.begin >= seen.end) return {};
  const double reference = static_cast<double>(state.reference[row]) * ln_2;
  if (view.job.sinks == nullptr) {
    return {static_cast<float>(1.0 / state.sum[row]), 1, reference + std::log(static_cast<double>(state.sum[row]))};
  }
  const double sink = view.job.sinks[view.tile.head(row)], origin = std::max(reference, sink);
  const double weight = std::exp(reference - origin), keys = state.sum[row] * weight;
  const double sum = keys + std::exp(sink - origin);
  return {static_cast<float>(weight / sum), static_cast<float>(keys / sum), origin + std::log(sum)};
}

/// Divides by the sum, puts back the value's scale and mean, and writes output and log-sum-exp.
HWY_INLINE void finish_row(const View& view, const State& state, int64_t row) {
  const Job& job = view.job;
  const Tile& tile = view.tile.tile();
  const Normalised normalised = normalise(view, state, row);
  float* out = state.out + row * state.value_width;
  float factor = normalised.factor;
  if (!view.value_blocks && factor != 0) factor *= job.value_scale.at(tile.batch, tile.key_head, 0, 0);
  for (int64_t c = 0; c < view.a.value_dim; ++c) out[c] *= factor;
  if (job.value_mean.data != nullptr) {
    const float* mean =
        static_cast<const float*>(job.value_mean.data) + job.value_mean.offset(tile.batch, 0, tile.key_head);
    for (int64_t c = 0; c < view.a.value_dim && normalised.share != 0; ++c) {
      out[c] += mean[c * job.value_mean.stride.row] * normalised.share;
    }
  }
  const float stored = job.out_scale == nullptr ? 1 : 1 / *job.out_scale;
  store_row(view.a.out.dtype, job.out.data, view.tile.offset(job.out, row), view.a.value_dim, stored, out);
  if (job.lse.data != nullptr) {
    static_cast<float*>(job.lse.data)[view.tile.offset(job.lse, row)] = static_cast<float>(normalised.lse);
  }
}

void load_queries(const View& view, const State& state) {
  const Job& job = view.job;
  const Tile& tile = view.tile.tile();
  const int64_t start = tile.sequence.first_query;
  for (int64_t r = 0; r < tile.rows; ++r) {
    load_row(view.a.dtype, job.query.data, view.tile.offset(job.query, r), view.a.head_dim, 1.0f,
             state.query + r * state.head_width);
    const float scale = job.query_scale.at(tile.batch, view.tile.head(r), view.tile.at(r) - start, start);
    state.row_scale[r] = scale * view.a.scale;
  }
}

void forward_fp8_tile_kernel(const Job& job, const Tile& tile, float* memory) {
  const View view(job, tile);
  Scratch scratch(memory);
  const State state(view.a, tile.rows, scratch);
  load_queries(view, state);
  std::fill(state.out, state.out + tile.rows * state.value_width, 0.0f);
  std::fill(state.reference, state.reference + tile.rows, -infinity);
  std::fill(state.sum, state.sum + tile.rows, 0.0f);
  for_each_block(view.tile, [&](const Block& block) { visit(view, block, state); });
  for (int64_t r = 0; r < tile.rows; ++r) finish_row(view, state, r);
}

size_t fp8_scratch_size(const Attention& a, int64_t rows) {
  Scratch scratch;
  const State state(a, rows, scratch);
  return scratch.used();
}

}  // namespace
}  // namespace tandem::internal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::internal::cpu {
HWY_EXPORT(forward_fp8_tile_kernel);
HWY_EXPORT(fp8_scratch_size);

size_t forward_fp8_scratch(const Attention& a, int64_t rows) { return HWY_DYNAMIC_DISPATCH(fp8_scratch_size)(a, rows); }

void forward_fp8_tile(const Job& job, const Tile& queries, float* scratch) {
  HWY_DYNAMIC_DISPATCH(forward_fp8_tile_kernel)(job, queries, scratch);
}

}  // namespace tandem::internal::cpu
#endif
