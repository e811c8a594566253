// Draws the problems of the sweep.
#include "cpu/sweep.hpp"

#include "oracle/random.hpp"

namespace testing_support {
namespace {

using tandem::Dtype;

/// Draws from a short list; the index of the draw makes the choices of one case independent of each other.
template <class T>
T pick(uint64_t seed, uint64_t& draw, std::initializer_list<T> of) {
  return of.begin()[oracle::hash(seed, draw++) % of.size()];
}

void draw_mask(uint64_t seed, uint64_t& draw, Config& c) {
  switch (pick(seed, draw, {0, 1, 2, 3, 4})) {
    case 1:
      c.mask.causal = true;
      break;
    case 2:
      c.mask = {false, pick<int64_t>(seed, draw, {-1, 0, 17, 100}), pick<int64_t>(seed, draw, {-1, 0, 5, 64}), {}};
      break;
    case 3:
      c.mask = {true, pick<int64_t>(seed, draw, {0, 1, 33, 130}), -1, {}};
      break;
    case 4:
      c.mask = {false, 40, pick<int64_t>(seed, draw, {0, 20}), pick<int64_t>(seed, draw, {-30, 0, 7, 90})};
      break;
    default:
      break;
  }
}

void draw_lengths(tandem::Pass pass, uint64_t seed, uint64_t& draw, Config& c) {
  const bool forward = pass == tandem::Pass::forward;
  const int kind = pick(seed, draw, {0, 0, 1, 2, 3});
  c.queries = pick<int64_t>(seed, draw, {1, 2, 7, 63, 64, 65, 97, 127, 129, 200});
  c.keys = pick<int64_t>(seed, draw, {1, 3, 63, 64, 65, 127, 128, 129, 191, 257, 300});
  if (!forward) {
    c.queries = pick<int64_t>(seed, draw, {1, 5, 63, 64, 65, 100});
    c.keys = pick<int64_t>(seed, draw, {1, 7, 64, 65, 127, 129, 150});
  }
  c.batch = pick<int64_t>(seed, draw, {1, 2, 3});
  const auto used = [&](int64_t most) {
    std::vector<int32_t> lengths;
    for (int64_t b = 0; b < c.batch; ++b) {
      lengths.push_back(static_cast<int32_t>(oracle::integer(seed, draw++, b == 1 ? 0 : most / 2, most)));
    }
    return lengths;
  };
  const auto cumulative = [&](int64_t most) {
    std::vector<int32_t> sums{0};
    for (int64_t b = 0; b < c.batch; ++b) {
      sums.push_back(sums.back() + static_cast<int32_t>(oracle::integer(seed, draw++, b == 2 ? 0 : 1, most)));
    }
    return sums;
  };
  if (kind == 1 || kind == 3) {
    c.cu_query = cumulative(c.queries);
    c.cu_key = cumulative(c.keys);
    c.total_key = c.cu_key.back() + (forward ? pick<int64_t>(seed, draw, {0, 9}) : 0);
  }
  if (kind == 2) {
    c.used_key = used(c.keys);
    if (pick(seed, draw, {false, true})) c.used_query = used(c.queries);
  }
  if (kind == 3) {
    for (int64_t b = 0; b < c.batch; ++b) {
      const auto at = static_cast<size_t>(b);
      c.used_key.push_back((c.cu_key[at + 1] - c.cu_key[at]) * 2 / 3);
    }
  }
}

}  // namespace

Config draw_config(tandem::Pass pass, uint64_t seed) {
  uint64_t draw = 0;
  Config c;
  c.seed = seed;
  c.dtype = pick(seed, draw, {Dtype::fp32, Dtype::fp16, Dtype::bf16});
  c.head_dim = pick<int64_t>(seed, draw, {1, 8, 24, 40, 64, 65, 80, 96, 128, 192, 256, 512});
  c.value_dim = pick<int64_t>(seed, draw, {c.head_dim, c.head_dim, 3, 64, 128});
  c.key_heads = pick<int64_t>(seed, draw, {1, 2, 3});
  c.query_heads = c.key_heads * pick<int64_t>(seed, draw, {1, 2, 3});
  c.layout = pick(seed, draw, {Layout::contiguous, Layout::head_major, Layout::gaps});
  c.out_layout = pick(seed, draw, {Layout::contiguous, Layout::head_major, Layout::gaps});
  draw_lengths(pass, seed, draw, c);
  draw_mask(seed, draw, c);
  if (pick(seed, draw, {0, 0, 1}) == 1) c.scale = pick(seed, draw, {0.0f, -0.2f, 1.0f, 0.03f});
  if (pick(seed, draw, {0, 0, 0, 1}) == 1) c.softcap = pick(seed, draw, {1.0f, 15.0f});
  c.sinks = pick(seed, draw, {0, 0, 0, 1}) == 1;
  c.threads = pick(seed, draw, {1, 2});
  return c;
}

}  // namespace testing_support
