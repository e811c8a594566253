// The CPU backend: plans of both passes, cut into tiles that run on several threads.
#include "backends/backends.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "backends/cpu/kernels.hpp"
#include "backends/cpu/parallel.hpp"
#include "backends/cpu/quantize.hpp"
#include "common/status.hpp"
#include "plan/scales.hpp"
#include "plan/spec.hpp"

namespace tandem::internal::cpu {
namespace {

Matrix matrix(const TensorView& view, const TensorSpec& spec) { return {view.data, strides(spec)}; }

/// The rows of a query tile: the largest that still gives each thread several tiles. A row's result doesn't
/// depend on it.
int64_t choose_tile_rows(const Attention& a, int64_t threads) {
  const int64_t rows = std::max<int64_t>(1, a.max_query * a.group());
  int64_t tile = max_tile_rows;
  while (tile > 12 && (rows + tile - 1) / tile * a.batch * a.key_heads < 4 * threads) tile /= 2;
  return std::min(tile, rows);
}

/// As many threads as the options allow and the work feeds: starting one takes as long as two million multiplications.
int choose_threads(const Attention& a) {
  const double products = static_cast<double>(a.batch) * static_cast<double>(a.query_heads) *
                          static_cast<double>(a.max_query) * static_cast<double>(a.max_key) *
                          static_cast<double>(a.head_dim + a.value_dim);
  const double fed = 1 + products / (1 << 21);
  return fed < workers(a.options) ? static_cast<int>(fed) : workers(a.options);
}

/// All tiles of a run on one side, queries or keys, numbered: sequence by sequence, head by head, the last rows first,
/// since under a causal mask the last queries see the most keys and long work should not come at the end.
class Tiles {
 public:
  /// `rows` is how many rows of a key head a sequence has on this side.
  template <class Rows>
  Tiles(const Attention& a, const std::vector<Sequence>& sequences, int64_t tile_rows, const Rows& rows)
      : sequences_(sequences), tile_rows_(tile_rows) {
    rows_.reserve(sequences.size());
    begin_.reserve(sequences.size() + 1);
    begin_.push_back(0);
    for (const Sequence& s : sequences) {
      rows_.push_back(rows(s));
      begin_.push_back(begin_.back() + count(rows_.back()) * a.key_heads);
    }
  }

  int64_t size() const { return begin_.back(); }

  Tile operator[](int64_t unit) const {
    const int64_t entry = std::upper_bound(begin_.begin(), begin_.end(), unit) - begin_.begin() - 1;
    const auto at = static_cast<size_t>(entry);
    const int64_t within = unit - begin_[at], tiles = count(rows_[at]);
    const int64_t first = (tiles - 1 - within % tiles) * tile_rows_;
    return {entry, within / tiles, sequences_[at], first, std::min(tile_rows_, rows_[at] - first)};
  }

 private:
  int64_t count(int64_t rows) const { return (rows + tile_rows_ - 1) / tile_rows_; }

  const std::vector<Sequence>& sequences_;
  int64_t tile_rows_;
  std::vector<int64_t> rows_, begin_;
};

Tiles query_tiles(const Attention& a, const std::vector<Sequence>& sequences, int64_t tile_rows) {
  return Tiles(a, sequences, tile_rows, [&](const Sequence& s) { return s.queries * a.group(); });
}

Tiles key_tiles(const Attention& a, const std::vector<Sequence>& sequences) {
  return Tiles(a, sequences, key_block, [](const Sequence& s) { return s.keys; });
}

/// Sets rows [first, last) to zero. What lies beyond a sequence's used length gets what a query gets that sees no key.
void clear_rows(const Matrix& matrix, Dtype dtype, int64_t batch, int64_t first, int64_t last, int64_t heads,
                int64_t columns) {
  const auto bytes = static_cast<size_t>(element_bytes(dtype));
  for (int64_t row = first; row < last; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      std::memset(static_cast<char*>(matrix.data) + matrix.offset(batch, row, head) * static_cast<int64_t>(bytes), 0,
                  static_cast<size_t>(columns) * bytes);
    }
  }
}

void add_scales(const Attention& a, const Arguments& arguments, Job& job) {
  const Quantization& q = a.quantization;
  job.query_scale = {arguments.query_scale, a.query_scale, q.query, q.query_rows, a.packed_query};
  job.key_scale = {arguments.key_scale, a.key_scale, q.key, q.key_rows, a.packed_key};
  job.value_scale = {arguments.value_scale, a.value_scale, q.value, q.value_rows, a.packed_key};
  if (q.value_layout == ValueLayout::packed) {
    const auto& stride = a.value.stride;
    job.value.stride = a.packed_key ? Strides{0, stride[1], stride[0]} : Strides{stride[0], stride[2], stride[1]};
  }
  if (q.value_mean) {
    job.value_mean = {arguments.value_mean.data,
                      {a.value_mean.stride[0], a.value_mean.stride[2], a.value_mean.stride[1]}};
  }
  if (a.out.dtype == Dtype::e4m3) job.out_scale = static_cast<const float*>(arguments.out_scale.data);
}

Job make_job(const Attention& a, const Arguments& arguments) {
  Job job;
  job.attention = &a;
  job.query = matrix(arguments.query, a.query);
  job.key = matrix(arguments.key, a.key);
  job.value = matrix(arguments.value, a.value);
  job.out = matrix(arguments.out, a.out);
  if (a.lse.present()) job.lse = {arguments.lse.data, lse_strides(a.lse)};
  if (a.sinks) job.sinks = static_cast<const float*>(arguments.sinks.data);
  if (eight_bits(a.dtype)) add_scales(a, arguments, job);
  if (a.pass == Pass::backward) {
    job.grad_out = matrix(arguments.grad_out, a.grad_out);
    job.grad_query = matrix(arguments.grad_query, a.grad_query);
    job.grad_key = matrix(arguments.grad_key, a.grad_key);
    job.grad_value = matrix(arguments.grad_value, a.grad_value);
  }
  return job;
}

/// What both passes share: threads, the tile and its scratch, the way of a run.
class CpuPlan : public Executable {
 public:
  CpuPlan(const Attention& a, size_t (*scratch)(const Attention&, int64_t))
      : Executable(a),
        threads_(choose_threads(a)),
        tile_rows_(choose_tile_rows(a, threads_)),
        scratch_(static_cast<size_t>(padded(static_cast<int64_t>(scratch(a, tile_rows_))))) {}

  size_t workspace_bytes() const noexcept override { return scratch_ * sizeof(float) * static_cast<size_t>(threads_); }

  std::string describe() const override {
    char text[400];
    std::snprintf(text, sizeof text,
                  "backend: cpu (%s, %d threads%s)\nalgorithm: %s\n"
                  "tile: %lld rows of (query, head of the group) x %lld keys\nworkspace: %zu bytes",
                  instruction_set(), threads_, attention().options.executor != nullptr ? " of the caller" : "",
                  algorithm(), static_cast<long long>(tile_rows_), static_cast<long long>(key_block),
                  workspace_bytes());
    return text;
  }

  Status run(const Arguments& arguments, void* workspace, void* /*stream*/) const noexcept override {
    return guarded([&]() -> Status {
      const std::vector<Sequence> sequences = read_sequences(attention(), arguments);
      compute(make_job(attention(), arguments), sequences, static_cast<float*>(workspace));
      return {};
    });
  }

 protected:
  int64_t tile_rows() const { return tile_rows_; }

  /// Calls work(unit, scratch of the thread that does it) for all units.
  template <class Work>
  void for_each_unit(int64_t units, float* workspace, const Work& work) const {
    parallel(attention().options, threads_, units,
             [&](int64_t unit, int worker) { work(unit, workspace + static_cast<size_t>(worker) * scratch_); });
  }

 private:
  virtual const char* algorithm() const = 0;
  virtual void compute(const Job& job, const std::vector<Sequence>& sequences, float* workspace) const = 0;

  int threads_;
  int64_t tile_rows_;
  size_t scratch_;  // floats a thread
};

class Forward final : public CpuPlan {
 public:
  explicit Forward(const Attention& a)
      : CpuPlan(a, eight_bits(a.dtype) ? forward_fp8_scratch : forward_scratch),
        tile_(eight_bits(a.dtype) ? forward_fp8_tile : forward_tile) {}

 private:
  const char* algorithm() const override {
    return eight_bits(attention().dtype) ? "blocked softmax in float32 without a running maximum, probabilities in e4m3"
                                         : "FlashAttention-1, blocked online softmax in float32";
  }

  void compute(const Job& job, const std::vector<Sequence>& sequences, float* workspace) const override {
    const Attention& a = attention();
    for (size_t b = 0; b < sequences.size(); ++b) {
      const Sequence& s = sequences[b];
      const auto batch = static_cast<int64_t>(b);
      const int64_t first = s.first_query + s.queries, last = s.first_query + s.query_room;
      clear_rows(job.out, a.out.dtype, batch, first, last, a.query_heads, a.value_dim);
      for (int64_t row = first; row < last && job.lse.data != nullptr; ++row) {
        for (int64_t head = 0; head < a.query_heads; ++head) {
          static_cast<float*>(job.lse.data)[job.lse.offset(batch, row, head)] = -std::numeric_limits<float>::infinity();
        }
      }
    }
    const Tiles tiles = query_tiles(a, sequences, tile_rows());
    for_each_unit(tiles.size(), workspace, [&](int64_t unit, float* scratch) { tile_(job, tiles[unit], scratch); });
  }

  void (*tile_)(const Job&, const Tile&, float*);
};

class Backward final : public CpuPlan {
 public:
  explicit Backward(const Attention& a) : CpuPlan(a, backward_scratch) {}

 private:
  const char* algorithm() const override {
    return "recomputation in float32, dQ by query tiles, dK and dV by key tiles";
  }

  void compute(const Job& job, const std::vector<Sequence>& sequences, float* workspace) const override {
    const Attention& a = attention();
    for (size_t b = 0; b < sequences.size(); ++b) {
      const Sequence& s = sequences[b];
      const auto batch = static_cast<int64_t>(b);
      const int64_t query = s.first_query + s.queries, key = s.first_key + s.keys;
      clear_rows(job.grad_query, a.dtype, batch, query, s.first_query + s.query_room, a.query_heads, a.head_dim);
      clear_rows(job.grad_key, a.dtype, batch, key, s.first_key + s.key_room, a.key_heads, a.head_dim);
      clear_rows(job.grad_value, a.dtype, batch, key, s.first_key + s.key_room, a.key_heads, a.value_dim);
    }
    const Tiles queries = query_tiles(a, sequences, tile_rows()), keys = key_tiles(a, sequences);
    for_each_unit(queries.size() + keys.size(), workspace, [&](int64_t unit, float* scratch) {
      if (unit < keys.size()) {
        backward_key_tile(job, keys[unit], tile_rows(), scratch);
      } else {
        backward_query_tile(job, queries[unit - keys.size()], scratch);
      }
    });
  }
};

}  // namespace

Status available() noexcept { return {}; }

ExecutableResult prepare(const Attention& a) noexcept {
  if (a.pass == Pass::quantize) return prepare_quantize(a);
  return guarded([&]() -> ExecutableResult {
    if (a.pass != Pass::forward && a.pass != Pass::backward) {
      return error(Code::unsupported, "pass", "the cpu backend serves the passes forward, backward and quantize");
    }
    if (a.dtype != Dtype::fp32 && a.dtype != Dtype::fp16 && a.dtype != Dtype::bf16 && !eight_bits(a.dtype)) {
      return error(Code::unsupported, "query", "the cpu backend takes fp32, fp16, bf16, e4m3 and int8");
    }
    if (a.head_dim > max_head_dim || a.value_dim > max_head_dim) {
      return error(Code::unsupported, a.head_dim > max_head_dim ? "query" : "value",
                   "the cpu backend takes head dims up to %lld", static_cast<long long>(max_head_dim));
    }
    if (a.pass == Pass::backward) return std::shared_ptr<const Executable>(std::make_shared<Backward>(a));
    if (!eight_bits(a.dtype)) return std::shared_ptr<const Executable>(std::make_shared<Forward>(a));
    Attention quantized = a;
    const BlockRows rows{1, static_cast<int>(key_block)};  // any number would do: scales are looked up by row
    if (Status status = choose_blocks(quantized, rows, rows, rows); !status.ok()) return status;
    return std::shared_ptr<const Executable>(std::make_shared<Forward>(quantized));
  });
}

}  // namespace tandem::internal::cpu
