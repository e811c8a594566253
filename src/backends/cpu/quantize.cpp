// The quantiser on the CPU: the same operations in the same order as the Hopper kernels, so that both give the same
// bytes. Rows are read once to find the scales and once more to be rounded; threads share out blocks of rows.
#include "backends/cpu/quantize.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "backends/cpu/parallel.hpp"
#include "backends/cpu/sequences.hpp"
#include "common/dtypes.hpp"
#include "common/quantized.hpp"
#include "common/rounding.hpp"
#include "common/status.hpp"

namespace tandem::internal::cpu {
namespace {

constexpr int64_t max_dim = 512;

/// Scales or magnitudes: strides by what they depend on, the others 0.
struct Scales {
  float* data = nullptr;
  int64_t batch = 0, head = 0, block = 0;
  float& at(int64_t b, int64_t h, int64_t n) const { return data[b * batch + h * head + n * block]; }
};

/// One tensor of a run: what is read and written, and how.
struct Operand {
  TensorSpec source_spec, target_spec;
  const void* source;
  void* target;
  Granularity granularity;
  Scales scales, given;  // given: magnitudes of the caller's, or no data
  int64_t rows;          // of a block
  int64_t heads, columns;
  bool of_query, is_value, groups;
  bool packed;       // sequences lie one after the other
  bool rotates;      // rotary embedding, signs and the Hadamard matrix may apply
  float largest;     // that an element holds
  int32_t hadamard;  // dimensions of its blocks, or 1
};

/// The rows of a sequence on one side.
struct Rows {
  int64_t first, used, room;
};

Rows rows_of(const Operand& o, const Sequence& s) {
  if (o.of_query) return {s.first_query, s.queries, s.query_room};
  return {s.first_key, s.keys, s.key_room};
}

Scales scales(const TensorSpec& spec, void* data, Granularity granularity, bool packed) {
  auto* floats = static_cast<float*>(data);
  if (granularity == Granularity::tensor) return {floats, 0, 0, 0};
  if (granularity == Granularity::head) return {floats, spec.stride[0], spec.stride[1], 0};
  if (packed) return {floats, 0, spec.stride[0], spec.stride[1]};
  return {floats, spec.stride[0], spec.stride[1], spec.stride[2]};
}

template <class Element>
void widen(const Element* from, int64_t columns, float* to) {
  for (int64_t i = 0; i < columns; ++i) to[i] = to_float(from[i]);
}

class QuantizeRun {
 public:
  QuantizeRun(const Attention& a, const Arguments& arguments)
      : a_(a), arguments_(arguments), sequences_(read_sequences(a, arguments)) {}

  void run() {
    for (const Operand& operand : operands()) {
      if (operand.is_value && a_.searches_mean()) find_means(operand);
      if (operand.granularity != Granularity::block) find_scales(operand);
      quantize(operand);
    }
  }

 private:
  std::vector<Operand> operands() const {
    const Quantization& q = a_.quantization;
    const Arguments& r = arguments_;
    std::vector<Operand> list;
    const auto add = [&](const TensorSpec& source, const TensorView& from, const TensorSpec& target,
                         const TensorView& to, Granularity granularity, const TensorSpec& scale,
                         const TensorView& scale_view, const TensorView& amax, int rows, bool of_query, bool is_value) {
      if (!source.present()) return;
      const auto rank = static_cast<size_t>(source.rank);
      const bool packed = of_query ? a_.packed_query : a_.packed_key;
      Operand o{source,
                target,
                from.data,
                to.data,
                granularity,
                scales(scale, scale_view.data, granularity, packed),
                {},
                rows,
                source.size[rank - 2],
                source.size[rank - 1],
                of_query,
                is_value,
                is_value && q.value_layout == ValueLayout::packed,
                packed,
                !is_value,
                target.dtype == Dtype::int8 ? largest_int8 : largest_e4m3,
                q.hadamard && !is_value ? hadamard_block(static_cast<int32_t>(a_.head_dim)) : 1};
      if (q.amax && granularity != Granularity::block) o.given = scales(amax.spec, amax.data, granularity, packed);
      // Without blocks of their own, rows are shared out by so many.
      if (granularity != Granularity::block) o.rows = 64;
      list.push_back(o);
    };
    add(a_.query, r.query, a_.quantized_query, r.quantized_query, q.query, a_.query_scale, r.query_scale, r.query_amax,
        q.query_rows, true, false);
    add(a_.key, r.key, a_.quantized_key, r.quantized_key, q.key, a_.key_scale, r.key_scale, r.key_amax, q.key_rows,
        false, false);
    add(a_.value, r.value, a_.quantized_value, r.quantized_value, q.value, a_.value_scale, r.value_scale, r.value_amax,
        q.value_rows, false, true);
    return list;
  }

  // ---------------------------------------------------------------------------------------------- one row

  void read(const Operand& o, int64_t b, int64_t h, int64_t row, float* x) const {
    const Strides s = strides(o.source_spec);
    const int64_t at = b * s.batch + row * s.row + h * s.head;
    switch (o.source_spec.dtype) {
      case Dtype::bf16:
        return widen(static_cast<const bf16*>(o.source) + at, o.columns, x);
      case Dtype::fp16:
        return widen(static_cast<const fp16*>(o.source) + at, o.columns, x);
      default:
        return widen(static_cast<const float*>(o.source) + at, o.columns, x);
    }
  }

  /// Row r of a sequence, as its elements are before they are scaled; without the Hadamard matrix's factor.
  void prepare(const Operand& o, int64_t b, int64_t h, const Rows& rows, int64_t r, float* x) const {
    read(o, b, h, rows.first + r, x);
    if (o.is_value && a_.quantization.value_mean) {
      const float* mean = static_cast<const float*>(arguments_.value_mean.data) + b * a_.value_mean.stride[0] +
                          h * a_.value_mean.stride[1];
      for (int64_t i = 0; i < o.columns; ++i) x[i] -= mean[i];
    }
    if (o.is_value) return;
    if (a_.rope.dims > 0) rotate(b, r, x);
    if (o.hadamard > 1) hadamard(o, x);
  }

  void rotate(int64_t b, int64_t r, float* x) const {
    const Rope& rope = a_.rope;
    int64_t position = r;
    if (rope.positions) position += static_cast<const int32_t*>(arguments_.position.data)[b];
    position = std::clamp<int64_t>(position, 0, a_.rope_cos.size[0] - 1);
    const float* cos = static_cast<const float*>(arguments_.rope_cos.data) + position * a_.rope_cos.stride[0];
    const float* sin = static_cast<const float*>(arguments_.rope_sin.data) + position * a_.rope_sin.stride[0];
    const int half = rope.dims / 2;
    for (int i = 0; i < half; ++i) {
      float& first = rope.interleaved ? x[2 * i] : x[i];
      float& second = rope.interleaved ? x[2 * i + 1] : x[i + half];
      const float turned = std::fma(first, cos[i], -(second * sin[i]));
      second = std::fma(second, cos[i], first * sin[i]);
      first = turned;
    }
  }

  void hadamard(const Operand& o, float* x) const {
    for (int64_t i = 0; i < o.columns; ++i)
      if (negative_sign(a_.quantization.sign_seed, static_cast<int32_t>(i))) x[i] = -x[i];
    for (int64_t distance = 1; distance < o.hadamard; distance *= 2) {
      for (int64_t i = 0; i < o.columns; ++i) {
        if ((i & distance) != 0) continue;
        const float sum = x[i] + x[i + distance];
        x[i + distance] = x[i] - x[i + distance];
        x[i] = sum;
      }
    }
  }

  /// The largest finite magnitude: elements that are infinite are stored as the largest number.
  static float magnitude(const float* x, int64_t columns) {
    float result = 0;
    for (int64_t i = 0; i < columns; ++i)
      if (std::isfinite(x[i])) result = std::max(result, std::fabs(x[i]));
    return result;
  }

  float magnitude(const Operand& o, int64_t b, int64_t h, const Rows& rows, int64_t first, int64_t last) const {
    float x[max_dim], result = 0;
    for (int64_t r = first; r < std::min(last, rows.used); ++r) {
      prepare(o, b, h, rows, r, x);
      result = std::max(result, magnitude(x, o.columns));
    }
    return result;
  }

  static uint8_t rounded(float x, bool integer) {
    if (!integer) return to_e4m3(x).bits;
    if (std::isnan(x)) return 0;
    return static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(std::clamp(x, -127.0f, 127.0f))));
  }

  uint8_t* place(const Operand& o, int64_t b, int64_t h, const Rows& rows, int64_t r) const {
    auto* target = static_cast<uint8_t*>(o.target);
    const auto& stride = o.target_spec.stride;
    if (!o.groups) {
      const Strides s = strides(o.target_spec);
      return target + b * s.batch + (rows.first + r) * s.row + h * s.head;
    }
    const int64_t group = r / value_group, place = packed_place(static_cast<int32_t>(r % value_group));
    if (!o.packed) return target + b * stride[0] + h * stride[1] + group * stride[2] + place;
    return target + h * stride[0] +
           (first_block(static_cast<int32_t>(rows.first), value_group, static_cast<int32_t>(b)) + group) * stride[1] +
           place;
  }

  void store(const Operand& o, int64_t b, int64_t h, const Rows& rows, int64_t r, const float* x, float factor) const {
    uint8_t* at = place(o, b, h, rows, r);
    const int64_t step = o.groups ? value_group : 1;
    const bool integer = o.target_spec.dtype == Dtype::int8;
    for (int64_t i = 0; i < o.columns; ++i) at[i * step] = rounded(x[i] * factor, integer);
  }

  // ---------------------------------------------------------------------------------------------- all of a tensor

  /// Calls work(sequence, head, number of the block in it) for all of a tensor's, on several threads.
  template <class Work>
  void for_each_block(const Operand& o, int64_t block_rows, const Work& work) const {
    std::vector<int64_t> begin{0};
    for (const Sequence& s : sequences_)
      begin.push_back(begin.back() + (rows_of(o, s).room + block_rows - 1) / block_rows * o.heads);
    parallel(a_.options, workers(a_.options), begin.back(), [&](int64_t unit, int) {
      const int64_t b = std::upper_bound(begin.begin(), begin.end(), unit) - begin.begin() - 1;
      const int64_t within = unit - begin[static_cast<size_t>(b)];
      work(b, within % o.heads, within / o.heads);
    });
  }

  template <class Work>
  void for_each_head(const Operand& o, const Work& work) const {
    parallel(a_.options, workers(a_.options), a_.batch * o.heads,
             [&](int64_t unit, int) { work(unit / o.heads, unit % o.heads); });
  }

  /// In the order of common/rounding.hpp.
  void find_means(const Operand& o) const {
    for_each_head(o, [&](int64_t b, int64_t h) {
      const Rows rows = rows_of(o, sequences_[static_cast<size_t>(b)]);
      std::vector<float> slots(static_cast<size_t>(mean_slots * o.columns), 0.0f);
      std::vector<float> lanes(static_cast<size_t>(mean_lanes * o.columns));
      float x[max_dim];
      for (int64_t chunk = 0; chunk * mean_chunk < rows.used; ++chunk) {
        std::fill(lanes.begin(), lanes.end(), 0.0f);
        for (int64_t r = chunk * mean_chunk; r < std::min(rows.used, (chunk + 1) * mean_chunk); ++r) {
          read(o, b, h, rows.first + r, x);
          float* sums = lanes.data() + r % mean_lanes * o.columns;
          for (int64_t i = 0; i < o.columns; ++i)
            if (std::isfinite(x[i])) sums[i] += x[i];
        }
        add_up(lanes, mean_lanes, o.columns, slots.data() + chunk % mean_slots * o.columns);
      }
      std::fill(x, x + o.columns, 0.0f);
      for (int64_t s = 0; s < mean_slots; ++s)
        for (int64_t i = 0; i < o.columns; ++i) x[i] += slots[static_cast<size_t>(s * o.columns + i)];
      float* mean =
          static_cast<float*>(arguments_.value_mean.data) + b * a_.value_mean.stride[0] + h * a_.value_mean.stride[1];
      for (int64_t i = 0; i < o.columns; ++i) mean[i] = mean_of(x[i], static_cast<int32_t>(rows.used));
    });
  }

  /// The lanes' sums, added in their order, go to a slot.
  static void add_up(const std::vector<float>& lanes, int64_t count, int64_t columns, float* slot) {
    for (int64_t i = 0; i < columns; ++i) {
      float sum = 0;
      for (int64_t l = 0; l < count; ++l) sum += lanes[static_cast<size_t>(l * columns + i)];
      slot[i] += sum;
    }
  }

  void find_scales(const Operand& o) const {
    std::vector<std::atomic<float>> found(static_cast<size_t>(a_.batch * o.heads));
    const float norm = hadamard_norm(o.hadamard);
    if (o.given.data == nullptr) {
      for_each_block(o, o.rows, [&](int64_t b, int64_t h, int64_t n) {
        const Rows rows = rows_of(o, sequences_[static_cast<size_t>(b)]);
        const float here = magnitude(o, b, h, rows, n * o.rows, (n + 1) * o.rows);
        std::atomic<float>& most = found[static_cast<size_t>(b * o.heads + h)];
        for (float seen = most; here > seen && !most.compare_exchange_weak(seen, here);) continue;
      });
    }
    float all = 0;
    for (const std::atomic<float>& one : found) all = std::max<float>(all, one);
    if (o.granularity == Granularity::tensor) {
      o.scales.at(0, 0, 0) = scale_of(o.given.data != nullptr ? o.given.at(0, 0, 0) : all * norm, o.largest, false);
      return;
    }
    for (int64_t b = 0; b < a_.batch; ++b) {
      for (int64_t h = 0; h < o.heads; ++h) {
        const float amax =
            o.given.data != nullptr ? o.given.at(b, h, 0) : found[static_cast<size_t>(b * o.heads + h)] * norm;
        o.scales.at(b, h, 0) = scale_of(amax, o.largest, false);
      }
    }
  }

  void quantize(const Operand& o) const {
    const float norm = hadamard_norm(o.hadamard);
    for_each_block(o, o.rows, [&](int64_t b, int64_t h, int64_t n) {
      const Rows rows = rows_of(o, sequences_[static_cast<size_t>(b)]);
      const int64_t first = n * o.rows, last = std::min(first + o.rows, rows.room);
      int64_t number = n;
      if (o.packed && o.granularity == Granularity::block)
        number += first_block(static_cast<int32_t>(rows.first), static_cast<int32_t>(o.rows), static_cast<int32_t>(b));
      float& scale = o.scales.at(b, h, number);
      if (o.granularity == Granularity::block)
        scale = scale_of(magnitude(o, b, h, rows, first, last) * norm, o.largest, o.is_value);
      const float factor = factor_of(scale, norm);
      float x[max_dim];
      // A packed value's last group is filled up with zeros.
      const int64_t end = o.groups ? (last + value_group - 1) / value_group * value_group : last;
      for (int64_t r = first; r < end; ++r) {
        if (r < std::min(last, rows.used)) {
          prepare(o, b, h, rows, r, x);
        } else {
          std::fill(x, x + o.columns, 0.0f);
        }
        store(o, b, h, rows, r, x, factor);
      }
    });
  }

  const Attention& a_;
  const Arguments& arguments_;
  const std::vector<Sequence> sequences_;
};

class CpuQuantize final : public Executable {
 public:
  using Executable::Executable;
  size_t workspace_bytes() const noexcept override { return 0; }
  std::string describe() const override {
    char text[200];
    const int dims = attention().quantization.hadamard ? hadamard_block(static_cast<int32_t>(attention().head_dim)) : 1;
    std::snprintf(text, sizeof text,
                  "backend: cpu (%d threads)\nalgorithm: quantise by blocks of rows%s\nworkspace: 0 bytes",
                  workers(attention().options), dims > 1 ? ", after random signs and the Hadamard matrix" : "");
    return text;
  }
  Status run(const Arguments& arguments, void*, void*) const noexcept override {
    return guarded([&]() -> Status {
      QuantizeRun(attention(), arguments).run();
      return {};
    });
  }
};

Status check(const char* name, const TensorSpec& source, Granularity granularity, int rows, const char* rows_name,
             bool groups) {
  if (!source.present()) return {};
  if (source.dtype != Dtype::bf16 && source.dtype != Dtype::fp16 && source.dtype != Dtype::fp32)
    return error(Code::unsupported, name, "the cpu backend quantises fp32, fp16 and bf16, not %s",
                 tandem::name(source.dtype));
  const int64_t columns = source.size[static_cast<size_t>(source.rank - 1)];
  if (columns > max_dim)
    return error(Code::unsupported, name, "the cpu backend quantises head dims up to %lld, not %lld",
                 static_cast<long long>(max_dim), static_cast<long long>(columns));
  if (granularity != Granularity::block) return {};
  if (rows <= 0)
    return error(Code::invalid_argument, rows_name,
                 "%s must be given; Plan::quantization() of the forward plan tells it", rows_name);
  if (groups && rows % value_group != 0)
    return error(Code::unsupported, rows_name, "%s is %d; for a packed value it must be a multiple of %d", rows_name,
                 rows, value_group);
  return {};
}

}  // namespace

ExecutableResult prepare_quantize(const Attention& a) noexcept {
  return guarded([&]() -> ExecutableResult {
    const Quantization& q = a.quantization;
    Status status = check("query", a.query, q.query, q.query_rows, "quantization.query_rows", false);
    if (status.ok()) status = check("key", a.key, q.key, q.key_rows, "quantization.key_rows", false);
    if (status.ok())
      status = check("value", a.value, q.value, q.value_rows, "quantization.value_rows",
                     q.value_layout == ValueLayout::packed);
    if (!status.ok()) return status;
    return std::shared_ptr<const Executable>(std::make_shared<CpuQuantize>(a));
  });
}

}  // namespace tandem::internal::cpu
