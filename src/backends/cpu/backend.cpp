// The CPU backend: plans of the forward pass, cut into query tiles that run on several threads.
#include "backends/backends.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "backends/cpu/kernels.hpp"
#include "backends/cpu/parallel.hpp"
#include "common/dtypes.hpp"
#include "common/status.hpp"

namespace tandem::internal::cpu {
namespace {

Matrix matrix(const TensorView& view, const TensorSpec& spec) { return {view.data, strides(spec)}; }

/// The row length of a query tile: the largest that still gives each thread several tiles. A row's result doesn't
/// depend on it.
int64_t choose_tile_rows(const Attention& a, int64_t threads) {
  const int64_t rows = std::max<int64_t>(1, a.max_query * a.group());
  int64_t tile = max_tile_rows;
  while (tile > 12 && (rows + tile - 1) / tile * a.batch * a.key_heads < 4 * threads) tile /= 2;
  return std::min(tile, rows);
}

/// All query tiles of a run, numbered: sequence by sequence, head by head, the last rows first, since under a causal
/// mask they see the most keys and long work should not come at the end.
class Tiles {
 public:
  Tiles(const Attention& a, const std::vector<Sequence>& sequences, int64_t tile_rows)
      : attention_(a), sequences_(sequences), tile_rows_(tile_rows) {
    begin_.reserve(sequences.size() + 1);
    begin_.push_back(0);
    for (const Sequence& s : sequences) begin_.push_back(begin_.back() + count(s) * a.key_heads);
  }

  int64_t size() const { return begin_.back(); }

  Tile operator[](int64_t unit) const {
    const auto entry = std::upper_bound(begin_.begin(), begin_.end(), unit) - begin_.begin() - 1;
    const Sequence& s = sequences_[static_cast<size_t>(entry)];
    const int64_t within = unit - begin_[static_cast<size_t>(entry)], tiles = count(s);
    const int64_t first = (tiles - 1 - within % tiles) * tile_rows_;
    return {entry, within / tiles, s, first, std::min(tile_rows_, s.queries * attention_.group() - first)};
  }

 private:
  int64_t count(const Sequence& s) const { return (s.queries * attention_.group() + tile_rows_ - 1) / tile_rows_; }

  const Attention& attention_;
  const std::vector<Sequence>& sequences_;
  int64_t tile_rows_;
  std::vector<int64_t> begin_;
};

void clear_row(const Job& job, int64_t batch, int64_t row) {
  const Attention& a = *job.attention;
  const size_t bytes = a.dtype == Dtype::fp32 ? 4 : 2;
  for (int64_t head = 0; head < a.query_heads; ++head) {
    const int64_t at = job.out.offset(batch, row, head);
    std::memset(static_cast<char*>(job.out.data) + at * static_cast<int64_t>(bytes), 0,
                static_cast<size_t>(a.value_dim) * bytes);
    if (job.lse.data == nullptr) continue;
    static_cast<float*>(job.lse.data)[job.lse.offset(batch, row, head)] = -std::numeric_limits<float>::infinity();
  }
}

/// Rows beyond a sequence's used length get what a query gets that sees no key.
void clear_unused_rows(const Job& job, const std::vector<Sequence>& sequences) {
  for (size_t b = 0; b < sequences.size(); ++b) {
    const Sequence& s = sequences[b];
    for (int64_t i = s.queries; i < s.query_room; ++i) clear_row(job, static_cast<int64_t>(b), s.first_query + i);
  }
}

class Forward final : public Executable {
 public:
  explicit Forward(const Attention& a)
      : Executable(a),
        threads_(workers(a.options)),
        tile_rows_(choose_tile_rows(a, threads_)),
        scratch_((forward_scratch(a, tile_rows_) + 15) / 16 * 16) {}

  size_t workspace_bytes() const noexcept override { return scratch_ * sizeof(float) * static_cast<size_t>(threads_); }

  std::string describe() const override {
    char text[320];
    std::snprintf(text, sizeof text,
                  "backend: cpu (%s, %d threads%s)\nalgorithm: FlashAttention-1, blocked online softmax in float32\n"
                  "tile: %lld rows of (query, head of the group) x %lld keys\nworkspace: %zu bytes",
                  instruction_set(), threads_, attention().options.executor != nullptr ? " of the caller" : "",
                  static_cast<long long>(tile_rows_), static_cast<long long>(key_block), workspace_bytes());
    return text;
  }

  Status run(const Arguments& arguments, void* workspace, void* /*stream*/) const noexcept override {
    return guarded([&]() -> Status {
      const Attention& a = attention();
      const std::vector<Sequence> sequences = read_sequences(a, arguments);
      Job job;
      job.attention = &a;
      job.query = matrix(arguments.query, a.query);
      job.key = matrix(arguments.key, a.key);
      job.value = matrix(arguments.value, a.value);
      job.out = matrix(arguments.out, a.out);
      if (a.lse.present()) job.lse = {arguments.lse.data, lse_strides(a.lse)};
      if (a.sinks) job.sinks = static_cast<const float*>(arguments.sinks.data);
      clear_unused_rows(job, sequences);
      const Tiles tiles(a, sequences, tile_rows_);
      parallel(a.options, threads_, tiles.size(), [&](int64_t unit, int worker) {
        forward_tile(job, tiles[unit], static_cast<float*>(workspace) + static_cast<size_t>(worker) * scratch_);
      });
      return {};
    });
  }

 private:
  int threads_;
  int64_t tile_rows_;
  size_t scratch_;  // floats a thread
};

}  // namespace

Status available() noexcept { return {}; }

ExecutableResult prepare(const Attention& a) noexcept {
  return guarded([&]() -> ExecutableResult {
    if (a.pass != Pass::forward) {
      return error(Code::unsupported, "pass", "the cpu backend computes the forward pass only");
    }
    if (a.dtype != Dtype::fp32 && a.dtype != Dtype::fp16 && a.dtype != Dtype::bf16) {
      return error(Code::unsupported, "query", "the cpu backend takes fp32, fp16 and bf16");
    }
    if (a.head_dim > max_head_dim || a.value_dim > max_head_dim) {
      return error(Code::unsupported, a.head_dim > max_head_dim ? "query" : "value",
                   "the cpu backend takes head dims up to %lld", static_cast<long long>(max_head_dim));
    }
    return std::shared_ptr<const Executable>(std::make_shared<Forward>(a));
  });
}

}  // namespace tandem::internal::cpu
