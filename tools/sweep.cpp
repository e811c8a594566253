// The sweep: drawing of cases, and their tensors. (Running them is in sweep_run.cpp.)
#include "tools/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "oracle/random.hpp"
#include "tools/inputs.hpp"

namespace tandem::tools {
namespace {

/// Draws from lists and ranges; each draw has an index of its own, so adding one at the end changes none before.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t between(int64_t low, int64_t high) { return oracle::integer(seed_, index_++, low, high); }
  bool one_in(int64_t n) { return between(1, n) == 1; }
  template <class T>
  T of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(between(0, static_cast<int64_t>(choices.size()) - 1))];
  }

 private:
  uint64_t seed_, index_ = 0;
};

/// What suits a backend: sizes that its oracle check can afford, and the dimensions that it has kernels for.
struct Limits {
  std::vector<Dtype> dtypes;
  std::vector<int64_t> head_dims;
  int64_t longest, most_heads, most_batch;
  int64_t cases, quick_cases;
};

Limits limits_of(const SweepOptions& options) {
  const std::vector<int64_t> gpu_dims = {64, 128, 256, 96, 192, 40, 72, 80, 112, 136, 160, 224, 248, 8};
  Limits limits;
  switch (options.backend) {
    case Backend::sm90:
      limits = {{Dtype::bf16, Dtype::fp16}, gpu_dims, 2100, 8, 4, 600, 120};
      break;
    case Backend::emulator:
      limits = {{Dtype::bf16, Dtype::fp16}, gpu_dims, 280, 2, 2, 80, 20};
      break;
    default:
      limits = {{Dtype::fp32, Dtype::bf16, Dtype::fp16},
                {64, 128, 256, 16, 80, 96, 192, 8, 40, 320, 512},
                700,
                8,
                4,
                300,
                60};
  }
  if (options.backward) limits.longest = std::min<int64_t>(limits.longest, 400);
  if (options.fp8) {
    limits.dtypes = {Dtype::bf16};
    if (options.backend != Backend::cpu) limits.head_dims = {128, 64, 256, 96, 192, 80, 48, 112, 16};
  }
  if (!options.head_dims.empty()) limits.head_dims = options.head_dims;
  return limits;
}

/// A length that likes the edges of tiles: powers of two and multiples of tile sizes, one off either way.
int64_t draw_length(Draw& draw, int64_t longest) {
  int64_t length = 0;
  switch (draw.between(0, 3)) {
    case 0:
      length = draw.of<int64_t>({64, 80, 128, 176, 192, 256, 384, 512, 1024, 2048}) + draw.between(-1, 1);
      break;
    case 1:
      length = draw.between(1, 20);
      break;
    default:
      length = draw.between(1, longest);
  }
  return std::min(length, longest);
}

Mask draw_mask(Draw& draw, int64_t queries, int64_t keys) {
  Mask mask;
  const int64_t kind = draw.between(0, 5);
  mask.causal = kind == 1 || kind == 2 || kind == 5;
  if (kind < 3) return mask;
  const int64_t longest = std::max(queries, keys);
  if (kind != 4) mask.left = draw.one_in(4) ? 0 : draw.between(0, longest);
  if (kind != 5) mask.right = draw.one_in(4) ? 0 : draw.between(0, longest);
  return mask;
}

Quantising draw_quantising(Draw& draw) {
  using enum Granularity;
  Quantising how;
  Quantization& q = how.quantization;
  q.query = draw.of<Granularity>({block, block, head, tensor});
  q.key = draw.of<Granularity>({block, block, head, tensor});
  q.value = draw.of<Granularity>({block, block, head, tensor});
  q.value_layout = draw.one_in(3) ? ValueLayout::rows : ValueLayout::packed;
  q.value_mean = draw.one_in(3);
  how.query_key = draw.one_in(4) ? Dtype::int8 : Dtype::e4m3;
  how.out = draw.of<Dtype>({Dtype::bf16, Dtype::bf16, Dtype::fp16, Dtype::e4m3});
  if (how.out == Dtype::e4m3) how.out_scale = draw.of<float>({0.01F, 0.125F});
  return how;
}

SweepCase draw_case(const SweepOptions& options, const Limits& limits, size_t number) {
  Draw draw(oracle::hash(options.seed, number));
  SweepCase c;
  c.number = number;
  c.seed = oracle::hash(options.seed, number) % 1'000'000;
  c.pass = options.backward ? Pass::backward : Pass::forward;
  // Types and dims go round, so that a short sweep meets all of them.
  c.dtype = limits.dtypes[number % limits.dtypes.size()];
  c.head_dim = limits.head_dims[number / limits.dtypes.size() % limits.head_dims.size()];
  c.value_dim = c.head_dim == 192 && draw.one_in(2) ? 128 : c.head_dim;
  c.batch = draw.between(1, limits.most_batch);
  c.key_heads = draw.of<int64_t>({1, 1, 2, 3, 4});
  c.query_heads = c.key_heads * draw.of<int64_t>({1, 1, 2, 3, 4, 8});
  if (c.query_heads > limits.most_heads) {
    c.key_heads = std::min(c.key_heads, limits.most_heads);
    c.query_heads = limits.most_heads / c.key_heads * c.key_heads;
  }
  c.queries = draw_length(draw, limits.longest);
  c.keys = draw.one_in(2) ? c.queries : draw_length(draw, limits.longest);
  c.mask = draw_mask(draw, c.queries, c.keys);
  if (draw.one_in(5)) c.scale = draw.of<float>({0.0F, -0.1F, 0.03F, 0.5F, 1.0F});
  c.packed = draw.one_in(4);
  c.used = draw.one_in(5);
  c.layout = draw.of<Layout>({Layout::row_major, Layout::row_major, Layout::head_major, Layout::padded});
  if (draw.one_in(8)) c.softcap = draw.of<float>({1.0F, 15.0F, 50.0F});
  c.sinks = draw.one_in(10) && !options.backward;
  if (!options.fp8) return c;
  c.quantising = draw_quantising(draw);
  c.rising = draw.one_in(4);
  c.shifted = draw.one_in(3);
  return c;
}

std::vector<int32_t> draw_lengths(const SweepCase& c, int64_t longest, uint64_t stream) {
  Draw draw(oracle::hash(c.seed, stream));
  std::vector<int32_t> lengths(static_cast<size_t>(c.batch));
  for (auto& length : lengths) length = static_cast<int32_t>(draw.one_in(6) ? 0 : draw.between(1, longest));
  lengths[static_cast<size_t>(draw.between(0, c.batch - 1))] = static_cast<int32_t>(longest);
  return lengths;
}

Tensor int32_tensor(const std::vector<int32_t>& values) {
  Array array{Dtype::int32, {static_cast<int64_t>(values.size())}, Bytes(values.size() * sizeof(int32_t))};
  std::copy_n(reinterpret_cast<const std::byte*>(values.data()), array.bytes.size(), array.bytes.begin());
  return tensor_of(array);
}

std::vector<int32_t> cumulative(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> sums(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), sums.begin() + 1);
  return sums;
}

/// Rows of one sequence that exist but don't count, to be poisoned.
struct Tail {
  int64_t batch_entry, begin, end;
};

/// What one side (queries or keys) of a case looks like.
struct Side {
  std::vector<int64_t> leading;  // (batch, seqlen), or (total)
  Tensor cumulative_lengths, used_lengths;
  std::vector<Tail> tails;
};

Side make_side(const SweepCase& c, int64_t longest, uint64_t stream) {
  Side side;
  const auto lengths = draw_lengths(c, longest, stream);
  const auto sums = cumulative(lengths);
  side.leading = c.packed ? std::vector<int64_t>{sums.back()} : std::vector<int64_t>{c.batch, longest};
  if (c.packed) side.cumulative_lengths = int32_tensor(sums);
  if (!c.used) return side;
  auto used = draw_lengths(c, longest, stream + 1);
  for (size_t b = 0; b < used.size(); ++b) {
    const int64_t space = c.packed ? lengths[b] : longest, first = c.packed ? sums[b] : 0;
    used[b] = static_cast<int32_t>(std::min<int64_t>(used[b], space));
    side.tails.push_back({c.packed ? 0 : static_cast<int64_t>(b), first + used[b], first + space});
  }
  side.used_lengths = int32_tensor(used);
  return side;
}

void poison_tails(Array& array, const Side& side) {
  const bool dense = side.leading.size() == 2;
  size_t row_bytes = size_of(array.dtype);
  for (size_t axis = side.leading.size(); axis < array.shape.size(); ++axis) {
    row_bytes *= static_cast<size_t>(array.shape[axis]);
  }
  for (const Tail& tail : side.tails) {
    const int64_t first = dense ? tail.batch_entry * side.leading[1] : 0;
    const auto begin = static_cast<size_t>(first + tail.begin), end = static_cast<size_t>(first + tail.end);
    std::fill_n(array.bytes.begin() + static_cast<long>(begin * row_bytes), (end - begin) * row_bytes, poison);
  }
}

}  // namespace

std::string SweepCase::name() const {
  std::string text = fmt::format("{} {} d{}", number, tandem::name(dtype), head_dim);
  if (value_dim != head_dim) text += fmt::format("/{}", value_dim);
  text += fmt::format(" b{} q{} k{} h{}/{}", batch, queries, keys, query_heads, key_heads);
  if (mask.causal) text += " causal";
  if (mask.left != -1 || mask.right != -1) text += fmt::format(" window {},{}", mask.left, mask.right);
  if (scale) text += fmt::format(" scale {}", *scale);
  if (softcap > 0) text += fmt::format(" softcap {}", softcap);
  if (sinks) text += " sinks";
  if (packed) text += " packed";
  if (used) text += " used";
  if (quantising) text += fmt::format(" {}", describe(*quantising));
  if (rising) text += " rising";
  if (shifted) text += " shifted";
  if (layout == Layout::head_major) text += " head-major";
  if (layout == Layout::padded) text += " padded";
  return text;
}

std::vector<SweepCase> sweep_cases(const SweepOptions& options) {
  const Limits limits = limits_of(options);
  const int64_t count = options.count > 0 ? options.count : options.quick ? limits.quick_cases : limits.cases;
  std::vector<SweepCase> cases;
  for (size_t number = 0; number < static_cast<size_t>(count); ++number) {
    cases.push_back(draw_case(options, limits, number));
  }
  return cases;
}

namespace {

/// A row-major tensor with each number changed, knowing what part of the tensor comes before it.
template <class Change>
Tensor changed(const Tensor& tensor, const Change& change) {
  const Array array = array_of(tensor);
  std::vector<float> values = floats(array, "sweep");
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = change(values[i], static_cast<double>(i) / static_cast<double>(values.size()));
  }
  return tensor_of(array_of(values, array.shape, array.dtype));
}

}  // namespace

Job make_job(const SweepCase& c) {
  const Side query_side = make_side(c, c.queries, 10), key_side = make_side(c, c.keys, 20);
  const auto shape = [](const Side& side, int64_t heads, int64_t dim) {
    std::vector<int64_t> result = side.leading;
    result.insert(result.end(), {heads, dim});
    return result;
  };
  const auto input = [&](const Side& side, int64_t heads, int64_t dim, uint64_t stream) {
    Array array = random_array(shape(side, heads, dim), c.dtype, c.seed * 8 + stream);
    poison_tails(array, side);
    return tensor_of(array, c.quantising ? Layout::row_major : c.layout);
  };
  Job job;
  job.pass = c.pass;
  job.problem.mask = c.mask;
  job.problem.scale = c.scale;
  job.problem.softcap = c.softcap;
  job.query = input(query_side, c.query_heads, c.head_dim, 1);
  job.key = input(key_side, c.key_heads, c.head_dim, 2);
  job.value = input(key_side, c.key_heads, c.value_dim, 3);
  if (c.rising) job.key = changed(job.key, [](float x, double part) { return x * static_cast<float>(1 + 3 * part); });
  if (c.shifted) job.value = changed(job.value, [](float x, double) { return x + 1; });
  job.out = poisoned(c.dtype, shape(query_side, c.query_heads, c.value_dim), c.layout);
  job.lse = poisoned(Dtype::fp32, c.packed ? std::vector<int64_t>{c.query_heads, query_side.leading[0]}
                                           : std::vector<int64_t>{c.batch, c.query_heads, c.queries});
  job.cu_query = query_side.cumulative_lengths;
  job.cu_key = key_side.cumulative_lengths;
  job.used_query = query_side.used_lengths;
  job.used_key = key_side.used_lengths;
  if (c.sinks) job.sinks = tensor_of(random_array({c.query_heads}, Dtype::fp32, c.seed * 8 + 4));
  if (c.pass != Pass::backward) return job;
  job.grad_out = input(query_side, c.query_heads, c.value_dim, 5);
  job.grad_query = poisoned(c.dtype, shape(query_side, c.query_heads, c.head_dim), c.layout);
  job.grad_key = poisoned(c.dtype, shape(key_side, c.key_heads, c.head_dim), c.layout);
  job.grad_value = poisoned(c.dtype, shape(key_side, c.key_heads, c.value_dim), c.layout);
  return job;
}

}  // namespace tandem::tools
