// Every compiled 8-bit forward kernel on small shapes of every sort, with several seeds of the emulator: no report of
// its checks, the same bytes for every seed, and the result near a float64 softmax of the same 8-bit tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "backends/sm90/forward_fp8/variants.hpp"
#include "common/dtypes.hpp"
#include "common/quantized.hpp"
#include "oracle/random.hpp"
#include "tandem/tandem.hpp"

namespace tandem {
namespace {

struct Case {
  const char* name;
  int64_t batch, queries, keys, query_heads, key_heads;
  bool causal = false;
  int64_t left = -1, right = -1;
  bool packed = false, used = false;
  Granularity granularity = Granularity::block;
  Dtype out = Dtype::bf16;
  bool mean = false, promote = true;
  float peak = 1;  // scores grow along the keys by so much
  int64_t fewer_columns = 0;
  int scale_rows = 0;  // of a block of keys and values; 0: what the plan says
};

constexpr auto head = Granularity::head, tensor = Granularity::tensor, block = Granularity::block;

const Case cases[] = {
    {"full", 1, 256, 256, 2, 2},
    {"one_block", 1, 70, 60, 2, 1},
    {"one_key", 1, 65, 1, 2, 2},
    {"no_keys", 2, 70, 0, 4, 2},
    {"no_keys_mean", 1, 70, 0, 2, 1, true, -1, -1, false, false, tensor, Dtype::e4m3, true},
    {"one_query", 2, 1, 333, 4, 1},
    {"causal", 1, 500, 500, 2, 1, true},
    {"more_queries_causal", 1, 700, 333, 1, 1, true},
    {"long_causal", 1, 1000, 1111, 1, 1, true},
    {"window", 1, 193, 290, 2, 1, false, 60, 20},
    {"causal_window", 2, 129, 257, 2, 2, true, 0},
    {"packed", 3, 150, 210, 2, 1, true, -1, -1, true},
    {"packed_used", 2, 130, 190, 2, 2, false, -1, -1, true, true},
    {"used", 3, 100, 140, 2, 1, true, -1, -1, false, true},
    {"used_long", 2, 64, 700, 2, 1, false, -1, -1, false, true},
    {"by_head", 1, 200, 300, 4, 2, false, -1, -1, false, false, head},
    {"by_tensor", 2, 140, 200, 2, 2, true, -1, -1, false, false, tensor},
    {"packed_by_head", 3, 100, 210, 2, 1, false, -1, -1, true, false, head},
    {"fp16_out", 1, 130, 190, 2, 1, false, -1, -1, false, false, block, Dtype::fp16},
    {"e4m3_out", 1, 130, 190, 2, 1, false, -1, -1, false, false, block, Dtype::e4m3},
    {"mean", 2, 130, 390, 2, 1, false, -1, -1, false, false, block, Dtype::bf16, true},
    {"promoted", 1, 130, 2100, 2, 1, false, -1, -1, false, false, block, Dtype::bf16, false},
    {"promoted_causal", 1, 70, 1300, 1, 1, true, -1, -1, false, false, block, Dtype::bf16, false},
    {"not_promoted", 1, 64, 1300, 1, 1, false, -1, -1, false, false, block, Dtype::bf16, false, false},
    {"peaked", 1, 130, 900, 2, 1, false, -1, -1, false, false, block, Dtype::bf16, false, true, 40},
    {"long", 1, 64, 2200, 1, 1},
    {"long_causal_packed", 2, 200, 2300, 1, 1, true, -1, -1, true},
    {"mean_long", 1, 130, 1300, 2, 1, true, -1, -1, false, false, block, Dtype::fp16, true},
    {"mean_long_packed", 2, 140, 1200, 1, 1, false, -1, -1, true, true, block, Dtype::bf16, true},
    {"mean_long_window", 1, 300, 1100, 1, 1, false, 130, 40, false, false, head, Dtype::e4m3, true},
    // Consumers see blocks of their own: one passes over what the other works on, before and behind.
    {"diagonal_alone", 1, 256, 1216, 2, 1, true, 0, -1, false, false, head, Dtype::bf16, true},
    {"mean_promoted", 1, 40, 16700, 1, 1, false, -1, -1, false, false, block, Dtype::bf16, true},
    {"scales_of_64", 1, 130, 300, 2, 1, true, -1, -1, false, false, block, Dtype::bf16, true, true, 1, 0, 64},
    {"promoted_scales_of_128", 1, 70, 1300, 1, 1, true, -1, -1, false, false, block, Dtype::bf16, false, true, 1, 0,
     128},
    {"narrow", 1, 130, 190, 2, 1, true, -1, -1, false, false, block, Dtype::bf16, true, true, 1, 16},
};

/// One case's tensors, and what they stand for.
class Fp8Problem {
 public:
  Fp8Problem(const Case& c, const internal::sm90::forward_fp8::Config& kernel) : c_(c) {
    int8_ = kernel.dtype == Dtype::int8;
    rows_ = kernel.value_layout == ValueLayout::rows;
    dim_ = kernel.head_dim - c.fewer_columns;
    lengths();
    specs();
  }

  Problem problem;
  Arguments arguments;

  int64_t dim() const { return dim_; }

  /// Quantises once the plan has said how.
  void fill(const Quantization& quantization) {
    q_ = quantization;
    const int64_t batch = c_.batch;
    const auto element = int8_ ? Dtype::int8 : Dtype::e4m3;
    query_.assign(static_cast<size_t>(total_query_ * c_.query_heads * dim_), 0x7f);
    key_.assign(static_cast<size_t>(total_key_ * c_.key_heads * dim_), 0x7f);
    groups_ = c_.packed ? total_key_ / 16 + batch : (c_.keys + 15) / 16;
    const int64_t value_bytes =
        rows_ ? total_key_ * c_.key_heads * dim_ : (c_.packed ? 1 : batch) * c_.key_heads * groups_ * 16 * dim_;
    value_.assign(static_cast<size_t>(value_bytes), 0x7f);
    query_values_.assign(query_.size(), 0);
    key_values_.assign(key_.size(), 0);
    value_values_.assign(key_.size(), 0);
    mean_.assign(static_cast<size_t>(batch * c_.key_heads * dim_), 0);
    for (size_t i = 0; i < mean_.size(); ++i) mean_[i] = oracle::normal(99, i);
    quantise_rows(1, query_start_, query_used_, query_rows_, c_.query_heads, q_.query, q_.query_rows, total_query_,
                  element, query_scale_, [&](int64_t row, int64_t h, int64_t d) -> Place {
                    const auto i = static_cast<size_t>((row * c_.query_heads + h) * dim_ + d);
                    return {&query_[i], &query_values_[i]};
                  });
    quantise_rows(2, key_start_, key_used_, key_rows_, c_.key_heads, q_.key, q_.key_rows, total_key_, element,
                  key_scale_, [&](int64_t row, int64_t h, int64_t d) -> Place {
                    const auto i = static_cast<size_t>((row * c_.key_heads + h) * dim_ + d);
                    return {&key_[i], &key_values_[i]};
                  });
    quantise_rows(3, key_start_, key_used_, key_rows_, c_.key_heads, q_.value, q_.value_rows, total_key_, Dtype::e4m3,
                  value_scale_, [&](int64_t row, int64_t h, int64_t d) -> Place {
                    const auto i = static_cast<size_t>((row * c_.key_heads + h) * dim_ + d);
                    return {rows_ ? &value_[i] : packed_value(row, h, d), &value_values_[i]};
                  });
    if (!rows_ && !c_.used) clear_padding();
    out_.assign(static_cast<size_t>(total_query_ * c_.query_heads * dim_ * (c_.out == Dtype::e4m3 ? 1 : 2)), 0xff);
    lse_.assign(static_cast<size_t>(total_query_ * c_.query_heads), std::numeric_limits<float>::quiet_NaN());
    views();
  }

  std::vector<uint8_t> output() const { return out_; }

  /// The root of the mean squared error over that of the exact output; the largest error of LSE in `lse_error`.
  double error(double& lse_error) const {
    double squares = 0, whole = 0;
    lse_error = 0;
    for (int64_t b = 0; b < c_.batch; ++b)
      for (int64_t h = 0; h < c_.query_heads; ++h)
        for (int64_t i = 0; i<query_rows_[b]; i += c_.queries> 400 ? 7 : 1)
          row_error(b, h, i, squares, whole, lse_error);
    return std::sqrt(squares / std::max(whole, 1e-30));
  }

 private:
  struct Place {
    uint8_t* bits;
    float* value;
  };

  void lengths() {
    const auto b = static_cast<uint64_t>(c_.batch);
    cu_query_.assign(1, 0);
    cu_key_.assign(1, 0);
    for (uint64_t i = 0; i < b; ++i) {
      const bool ragged = c_.packed;
      query_rows_.push_back(ragged ? c_.queries - static_cast<int64_t>(37 * i % 90) : c_.queries);
      key_rows_.push_back(ragged ? c_.keys - static_cast<int64_t>(53 * i % 101) : c_.keys);
      query_used_.push_back(c_.used ? query_rows_[i] - static_cast<int64_t>(11 * i) : query_rows_[i]);
      key_used_.push_back(c_.used ? key_rows_[i] - static_cast<int64_t>(29 * i + 3) : key_rows_[i]);
      query_start_.push_back(ragged ? cu_query_.back() : static_cast<int64_t>(i) * c_.queries);
      key_start_.push_back(ragged ? cu_key_.back() : static_cast<int64_t>(i) * c_.keys);
      cu_query_.push_back(cu_query_.back() + static_cast<int32_t>(query_rows_[i]));
      cu_key_.push_back(cu_key_.back() + static_cast<int32_t>(key_rows_[i]));
      used_query_.push_back(static_cast<int32_t>(query_used_[i]));
      used_key_.push_back(static_cast<int32_t>(key_used_[i]));
    }
    total_query_ = c_.packed ? cu_query_.back() : c_.batch * c_.queries;
    total_key_ = c_.packed ? cu_key_.back() : c_.batch * c_.keys;
  }

  void specs() {
    const auto element = int8_ ? Dtype::int8 : Dtype::e4m3;
    const auto spec = [&](Dtype dtype, int64_t rows, int64_t total, int64_t heads) {
      return c_.packed ? contiguous(dtype, cpu(), {total, heads, dim_})
                       : contiguous(dtype, cpu(), {c_.batch, rows, heads, dim_});
    };
    problem.query = spec(element, c_.queries, total_query_, c_.query_heads);
    problem.key = spec(element, c_.keys, total_key_, c_.key_heads);
    problem.out = spec(c_.out, c_.queries, total_query_, c_.query_heads);
    if (rows_)
      problem.value = spec(Dtype::e4m3, c_.keys, total_key_, c_.key_heads);
    else if (c_.packed)
      problem.value = contiguous(Dtype::e4m3, cpu(), {c_.key_heads, total_key_ / 16 + c_.batch, dim_, 16});
    else
      problem.value = contiguous(Dtype::e4m3, cpu(), {c_.batch, c_.key_heads, (c_.keys + 15) / 16, dim_, 16});
    problem.lse = c_.packed ? contiguous(Dtype::fp32, cpu(), {c_.query_heads, total_query_})
                            : contiguous(Dtype::fp32, cpu(), {c_.batch, c_.query_heads, c_.queries});
    problem.mask.causal = c_.causal;
    problem.mask.left = c_.left;
    problem.mask.right = c_.right;
    problem.lengths.packed_query = problem.lengths.packed_key = c_.packed;
    problem.lengths.used_query = problem.lengths.used_key = c_.used;
    if (c_.packed) {
      problem.lengths.batch = c_.batch;
      problem.lengths.max_query = c_.queries;
      problem.lengths.max_key = c_.keys;
    }
    Quantization& q = problem.quantization;
    q.query = q.key = q.value = c_.granularity;
    q.value_layout = rows_ ? ValueLayout::rows : ValueLayout::packed;
    q.value_mean = c_.mean;
    q.promote = c_.promote;
    q.key_rows = q.value_rows = c_.scale_rows;
    problem.options.backend = Backend::emulator;
  }

  uint8_t* packed_value(int64_t row, int64_t h, int64_t d) {
    int64_t b = 0;
    while (b + 1 < c_.batch && row >= key_start_[b + 1]) ++b;
    const int64_t within = row - key_start_[b];
    const int64_t group = within / 16 + (c_.packed ? key_start_[b] / 16 + b : 0);
    const int64_t of_head = (c_.packed ? h : b * c_.key_heads + h) * groups_;
    return &value_[static_cast<size_t>(((of_head + group) * dim_ + d) * 16 +
                                       packed_place(static_cast<int32_t>(within % 16)))];
  }
  /// Keys beyond a sequence's end are stored as 0.
  void clear_padding() {
    for (int64_t b = 0; b < c_.batch; ++b)
      for (int64_t h = 0; h < c_.key_heads; ++h)
        for (int64_t row = key_rows_[b]; row % 16 != 0; ++row)
          for (int64_t d = 0; d < dim_; ++d) {
            const int64_t group = row / 16 + (c_.packed ? key_start_[b] / 16 + b : 0);
            const int64_t of_head = (c_.packed ? h : b * c_.key_heads + h) * groups_;
            value_[static_cast<size_t>(((of_head + group) * dim_ + d) * 16 +
                                       packed_place(static_cast<int32_t>(row % 16)))] = 0;
          }
  }

  template <class At>
  void quantise_rows(uint64_t seed, const std::vector<int64_t>& start, const std::vector<int64_t>& used,
                     const std::vector<int64_t>& rows, int64_t heads, Granularity granularity, int64_t block_rows,
                     int64_t total, Dtype dtype, std::vector<float>& scales, At at) {
    const int64_t longest = *std::max_element(rows.begin(), rows.end());
    const int64_t r = std::max<int64_t>(block_rows, 1);
    const int64_t blocks = granularity == block ? (c_.packed ? total / r + c_.batch : (longest + r - 1) / r) : 1;
    const bool by_sequence = granularity != tensor && !(granularity == block && c_.packed);
    scales.assign(granularity == tensor ? 1 : static_cast<size_t>((by_sequence ? c_.batch : 1) * heads * blocks),
                  std::numeric_limits<float>::quiet_NaN());
    uint64_t counter = 0;
    for (int64_t b = 0; b < c_.batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t row = 0; row < used[b]; ++row) {
          const int64_t number = granularity == block ? row / r + (c_.packed ? start[b] / r + b : 0) : 0;
          float scale = 0x1p-6f;
          size_t index = 0;
          if (granularity != tensor) index = static_cast<size_t>(((by_sequence ? b * heads : 0) + h) * blocks + number);
          // Powers of two, for values too; of different size from block to block.
          if (granularity != tensor) scale = std::ldexp(1.0f, -6 + static_cast<int>(oracle::hash(seed, index) % 3));
          scales[index] = scale;
          for (int64_t d = 0; d < dim_; ++d) {
            float x = oracle::normal(seed, counter++);
            if (seed == 2 && d == 0) x *= 1 + c_.peak * static_cast<float>(row) / 1000;
            const Place place = at(start[b] + row, h, d);
            if (dtype == Dtype::int8) {
              const float rounded = std::clamp(std::nearbyint(x / scale), -127.0f, 127.0f);
              *place.bits = static_cast<uint8_t>(static_cast<int8_t>(rounded));
              *place.value = rounded * scale;
            } else {
              const e4m3 bits = to_e4m3(x / scale);
              *place.bits = bits.bits;
              *place.value = to_float(bits) * scale;
            }
          }
        }
  }

  void views() {
    arguments.query = {problem.query, query_.data()};
    arguments.key = {problem.key, key_.data()};
    arguments.value = {problem.value, value_.data()};
    arguments.out = {problem.out, out_.data()};
    arguments.lse = {problem.lse, lse_.data()};
    const auto floats = [&](std::vector<float>& data) {
      TensorView view;
      view.data = data.data();
      return view;
    };
    arguments.query_scale = floats(query_scale_);
    arguments.key_scale = floats(key_scale_);
    arguments.value_scale = floats(value_scale_);
    if (c_.mean) arguments.value_mean = floats(mean_);
    if (c_.out == Dtype::e4m3) arguments.out_scale = {contiguous(Dtype::fp32, cpu(), {1}), &out_scale_};
    const auto lengths_of = [&](std::vector<int32_t>& data) {
      return TensorView{contiguous(Dtype::int32, cpu(), {static_cast<int64_t>(data.size())}), data.data()};
    };
    if (c_.packed) arguments.cu_query = lengths_of(cu_query_), arguments.cu_key = lengths_of(cu_key_);
    if (c_.used) arguments.used_query = lengths_of(used_query_), arguments.used_key = lengths_of(used_key_);
  }

  double stored(int64_t row, int64_t h, int64_t d) const {
    const auto i = static_cast<size_t>((row * c_.query_heads + h) * dim_ + d);
    if (c_.out == Dtype::e4m3) return to_float(e4m3{out_[i]}) * out_scale_;
    uint16_t bits;
    std::memcpy(&bits, &out_[2 * i], 2);
    return c_.out == Dtype::bf16 ? to_float(bf16{bits}) : to_float(fp16{bits});
  }

  void row_error(int64_t b, int64_t h, int64_t i, double& squares, double& whole, double& lse_error) const {
    const int64_t row = query_start_[b] + i, keys = key_used_[b], kh = h / (c_.query_heads / c_.key_heads);
    const int64_t at = i + keys - query_used_[b];
    std::vector<double> weight(static_cast<size_t>(keys), 0);
    const double scale = 1 / std::sqrt(static_cast<double>(dim_));
    double most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < keys; ++k) {
      double s = 0;
      for (int64_t d = 0; d < dim_; ++d)
        s += static_cast<double>(query_values_[static_cast<size_t>((row * c_.query_heads + h) * dim_ + d)]) *
             key_values_[static_cast<size_t>(((key_start_[b] + k) * c_.key_heads + kh) * dim_ + d)];
      const bool seen = i < query_used_[b] && (c_.left < 0 || k >= at - c_.left) &&
                        (c_.right < 0 || k <= at + c_.right) && (!c_.causal || k <= at);
      weight[static_cast<size_t>(k)] = seen ? s * scale : -INFINITY;
      most = std::max(most, weight[static_cast<size_t>(k)]);
    }
    if (most > -INFINITY)
      for (double& w : weight) sum += w = std::exp(w - most);
    for (int64_t d = 0; d < dim_; ++d) {
      double exact = 0;
      for (int64_t k = 0; sum > 0 && k < keys; ++k)
        exact += weight[static_cast<size_t>(k)] / sum *
                 value_values_[static_cast<size_t>(((key_start_[b] + k) * c_.key_heads + kh) * dim_ + d)];
      if (sum > 0 && c_.mean) exact += mean_[static_cast<size_t>((b * c_.key_heads + kh) * dim_ + d)];
      const double error = stored(row, h, d) - exact;
      squares += std::isnan(error) ? INFINITY : error * error;
      whole += exact * exact;
    }
    const auto lse_index = c_.packed ? h * total_query_ + row : (b * c_.query_heads + h) * c_.queries + i;
    const double lse = lse_[static_cast<size_t>(lse_index)], expected = sum > 0 ? most + std::log(sum) : -INFINITY;
    if (lse != expected)
      lse_error = std::max(lse_error, std::isfinite(lse - expected) ? std::abs(lse - expected) : 1e9);
  }

  const Case& c_;
  Quantization q_;
  bool int8_ = false, rows_ = false;
  int64_t dim_ = 0, total_query_ = 0, total_key_ = 0, groups_ = 0;
  std::vector<int64_t> query_rows_, key_rows_, query_used_, key_used_, query_start_, key_start_;
  std::vector<int32_t> cu_query_, cu_key_, used_query_, used_key_;
  std::vector<uint8_t> query_, key_, value_, out_;
  std::vector<float> query_values_, key_values_, value_values_, mean_, lse_, query_scale_, key_scale_, value_scale_;
  float out_scale_ = 0x1p-7f;
};

using internal::sm90::forward_fp8::Variant;
const auto& kernels = internal::sm90::forward_fp8_variants;  // known without a compiler of kernels, too

class Fp8Kernel : public testing::TestWithParam<size_t> {};

TEST_P(Fp8Kernel, PassesTheChecks) {
  const Variant& kernel = kernels[GetParam()];
  const Status status = available(Backend::emulator);
  ASSERT_TRUE(status.ok()) << status.message;
  int served = 0;
  for (const Case& c : cases) {
    Fp8Problem problem(c, kernel.config);
    std::vector<uint8_t> first;
    const uint64_t seeds = c.queries * c.keys > 120000 ? 1 : 2;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE(std::string(c.name) + ", seed " + std::to_string(seed));
      problem.problem.options.emulator_seed = seed;
      const auto planned = plan(Pass::forward, problem.problem);
      ASSERT_TRUE(planned.ok()) << planned.status().argument << ": " << planned.status().message;
      // Another kernel may serve a shape better.
      if (planned->describe().find(std::string(kernel.name) + "\n") == std::string::npos) break;
      served += seed == 1;
      problem.fill(planned->quantization());
      std::vector<uint8_t> workspace(planned->workspace_bytes() + 256);
      void* aligned = workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256;
      const Status run = planned->run(problem.arguments, aligned, planned->workspace_bytes());
      ASSERT_TRUE(run.ok()) << run.argument << ": " << run.message;
      if (seed > 1) {
        EXPECT_TRUE(problem.output() == first) << "another seed gives another result";
        continue;
      }
      first = problem.output();
      double lse_error = 0;
      const double error = problem.error(lse_error);
      // Rounding P costs about 2.6e-2 of an output of noise; an 8-bit output as much again.
      EXPECT_LE(error, c.out == Dtype::e4m3 ? 6e-2 : 4e-2);
      EXPECT_LE(lse_error, 1e-2);
      if (testing::Test::HasFailure() || std::getenv("TANDEM_TEST_VERBOSE") != nullptr)
        std::printf("%s %s: error %.4f, lse %.5f\n", kernel.name, c.name, error, lse_error);
    }
  }
  EXPECT_GE(served, 1) << kernel.name << " serves none of the shapes";
}

std::string test_name(const testing::TestParamInfo<size_t>& info) { return kernels[info.param].name; }

INSTANTIATE_TEST_SUITE_P(Emulator, Fp8Kernel, testing::Range(size_t{0}, std::size(kernels)), test_name);

}  // namespace
}  // namespace tandem
