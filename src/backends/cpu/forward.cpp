// The CPU's forward kernel: FA-1 Algorithm 1 over one query tile. Key blocks are the outer loop's work, the online
// softmax keeps a maximum, a sum and an unnormalised output row per query; scores never leave the tile.
#include "backends/cpu/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/forward.cpp"
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

/// Where the parts of a tile's state lie in its scratch.
struct State {
  int64_t head_width, value_width;
  float *query, *out, *scores, *key, *value, *staging, *maximum, *sum, *factor;

  State(const Attention& a, int64_t rows, float* scratch)
      : head_width(padded(a.head_dim)), value_width(padded(a.value_dim)) {
    const auto take = [&](int64_t count) {
      float* at = scratch;
      scratch += padded(count);
      return at;
    };
    query = take(rows * head_width);
    out = take(rows * value_width);
    scores = take(rows * key_block);
    key = take(head_width * key_block);
    value = take(key_block * value_width);
    staging = take(4 * head_width);
    maximum = take(rows);
    sum = take(rows);
    factor = take(rows);
  }
};

/// The keys that a tile's rows see, and the problem's constants as the kernel uses them.
struct View {
  const Job& job;
  const Tile& tile;
  int32_t group, keys, diagonal;
  // The sign of the scale is folded into the query, so that the largest score is the largest product; a scale of 0
  // makes all products 0 (a NaN stays one).
  float sign, scale;

  View(const Job& j, const Tile& t) : job(j), tile(t) {
    const Attention& a = *job.attention;
    group = static_cast<int32_t>(a.group());
    keys = static_cast<int32_t>(tile.sequence.keys);
    diagonal = a.diagonal.value_or(static_cast<int32_t>(tile.sequence.keys - tile.sequence.queries));
    sign = a.scale > 0 ? 1.0f : (a.scale < 0 ? -1.0f : 0.0f);
    scale = a.scale == 0 ? 1.0f : std::abs(a.scale);
  }
  int64_t query(int64_t row) const { return (tile.first + row) / group; }
  int64_t head(int64_t row) const { return tile.key_head * group + (tile.first + row) % group; }
  Range seen(int64_t row) const {
    return visible_keys(static_cast<int32_t>(query(row)), keys, diagonal, job.attention->window);
  }
};

/// One block's keys [begin, end) relative to its first key, of those that the tile sees, and the rows that see some.
struct Block {
  int64_t first, begin, end;
  int64_t first_row, last_row;  // half-open
};

/// The scores of a row become probabilities up to a factor; its maximum, sum and rescaling factor are brought up to
/// date (Algorithm 1, lines 10 and 11).
HWY_INLINE void softmax_row(const View& view, const Block& block, const State& state, int64_t row, int64_t columns) {
  const Floats d;
  float* scores = state.scores + row * key_block;
  float scale = view.scale;
  if (const float cap = view.job.attention->softcap; cap > 0) {
    const Vector inner = hn::Set(d, scale / cap), outer = hn::Set(d, cap);
    for (int64_t c = 0; c < columns; c += lanes) {
      hn::Store(hn::Mul(outer, hn::Tanh(d, hn::Mul(hn::Load(d, scores + c), inner))), d, scores + c);
    }
    scale = 1;
  }
  const Range seen = view.seen(row);
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
  const Vector origin = hn::Set(d, reference), slope = hn::Set(d, scale * log2_e);
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
  const Attention& a = *view.job.attention;
  const Sequence& s = view.tile.sequence;
  const Matrix &key = view.job.key, &value = view.job.value;
  const int64_t key_at = view.tile.batch * key.stride.batch + view.tile.key_head * key.stride.head;
  const int64_t value_at = view.tile.batch * value.stride.batch + view.tile.key_head * value.stride.head;
  const int64_t columns = std::min<int64_t>(
      key_block, (block.end + vector_group * lanes - 1) / (vector_group * lanes) * (vector_group * lanes));
  load_transposed(
      a.dtype, key.data, [&](int64_t j) { return key_at + (s.first_key + block.first + j) * key.stride.row; },
      a.head_dim, block.begin, block.end, columns, state.staging, state.key);
  for (int64_t j = block.begin; j < block.end; ++j) {
    load_row(a.dtype, value.data, value_at + (s.first_key + block.first + j) * value.stride.row, a.value_dim, 1.0f,
             state.value + j * state.value_width);
  }
  const int64_t rows = block.last_row - block.first_row;
  multiply({state.query + block.first_row * state.head_width, state.head_width, 1, state.key, key_block,
            state.scores + block.first_row * key_block, key_block},
           rows, columns, a.head_dim);
  for (int64_t r = block.first_row; r < block.last_row; ++r) softmax_row(view, block, state, r, columns);
  multiply({state.scores + block.first_row * key_block + block.begin, key_block, 1,
            state.value + block.begin * state.value_width, state.value_width,
            state.out + block.first_row * state.value_width, state.value_width, Start::scale,
            state.factor + block.first_row},
           rows, state.value_width, block.end - block.begin);
}

/// Divides by the sum, lets the sink join it, and writes output and log-sum-exp (Algorithm 1, lines 12 and 13).
HWY_INLINE void finish_row(const View& view, const State& state, int64_t row) {
  const Job& job = view.job;
  const Attention& a = *job.attention;
  const int64_t at = view.tile.sequence.first_query + view.query(row), head = view.head(row);
  const Range seen = view.seen(row);
  float factor = 0;
  double lse = -infinity;
  if (seen.begin < seen.end) {
    const double maximum = static_cast<double>(state.maximum[row]) * (a.softcap > 0 ? 1.0 : view.scale);
    double sum = state.sum[row], weight = 1, reference = maximum;
    if (job.sinks != nullptr) {
      const double sink = job.sinks[head];
      reference = std::max(maximum, sink);
      weight = std::exp(maximum - reference);
      sum = sum * weight + std::exp(sink - reference);
    }
    factor = static_cast<float>(weight / sum);
    lse = reference + std::log(sum);
  }
  store_row(a.dtype, job.out,
            view.tile.batch * job.out_stride.batch + at * job.out_stride.row + head * job.out_stride.head, a.value_dim,
            factor, state.out + row * state.value_width);
  if (job.lse != nullptr) {
    job.lse[view.tile.batch * job.lse_stride.batch + at * job.lse_stride.row + head * job.lse_stride.head] =
        static_cast<float>(lse);
  }
}

void forward_tile_kernel(const Job& job, const Tile& tile, float* scratch) {
  const Attention& a = *job.attention;
  const View view(job, tile);
  const State state(a, tile.rows, scratch);
  for (int64_t r = 0; r < tile.rows; ++r) {
    const int64_t at = tile.batch * job.query.stride.batch + view.head(r) * job.query.stride.head +
                       (tile.sequence.first_query + view.query(r)) * job.query.stride.row;
    load_row(a.dtype, job.query.data, at, a.head_dim, view.sign, state.query + r * state.head_width);
  }
  std::fill(state.out, state.out + tile.rows * state.value_width, 0.0f);
  std::fill(state.maximum, state.maximum + tile.rows, -infinity);
  std::fill(state.sum, state.sum + tile.rows, 0.0f);

  // Only keys that some row sees are read: whatever lies beyond never reaches a result.
  const int64_t begin = view.seen(0).begin, end = view.seen(tile.rows - 1).end;
  for (int64_t first = begin / key_block * key_block; first < end; first += key_block) {
    Block block{first, std::max<int64_t>(begin - first, 0), std::min<int64_t>(end - first, key_block), 0, tile.rows};
    // Both ends of what a row sees grow with the row, so the rows that see a part of the block are one range.
    const auto misses = [&](int64_t r) {
      const Range seen = view.seen(r);
      return std::max<int64_t>(seen.begin, first) >= std::min<int64_t>(seen.end, first + key_block);
    };
    while (block.first_row < block.last_row && misses(block.first_row)) ++block.first_row;
    while (block.last_row > block.first_row && misses(block.last_row - 1)) --block.last_row;
    if (block.first_row < block.last_row) visit(view, block, state);
  }
  for (int64_t r = 0; r < tile.rows; ++r) finish_row(view, state, r);
}

const char* instruction_set_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace tandem::internal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::internal::cpu {
HWY_EXPORT(forward_tile_kernel);
HWY_EXPORT(instruction_set_name);

size_t forward_scratch(const Attention& a, int64_t rows) {
  const int64_t head_width = padded(a.head_dim), value_width = padded(a.value_dim);
  return static_cast<size_t>(rows * (head_width + value_width + key_block) + key_block * (head_width + value_width) +
                             4 * head_width + 3 * padded(rows));
}

void forward_tile(const Job& job, const Tile& tile, float* scratch) {
  HWY_DYNAMIC_DISPATCH(forward_tile_kernel)(job, tile, scratch);
}

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(instruction_set_name)(); }

}  // namespace tandem::internal::cpu
#endif
