// The judge of quantised tensors, in float64: what each element, scale and mean should be, and that nothing else was
// written.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/dtypes.hpp"
#include "quantize/support.hpp"

namespace quantize_support {
namespace {

using tandem::Dtype;
using tandem::Granularity;
using Row = std::vector<double>;

/// Of float32 arithmetic, relative to a row's largest element.
constexpr double slack = 2e-5;

double widen(uint16_t bits, Dtype dtype) {
  return dtype == Dtype::bf16 ? tandem::to_float(tandem::bf16{bits}) : tandem::to_float(tandem::fp16{bits});
}

/// The finaliser of splitmix64 on the dim'th of its states.
bool negative(uint64_t seed, uint64_t dim) {
  uint64_t z = seed;
  for (uint64_t n = 0; n <= dim; ++n) z += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return ((z ^ z >> 31) & 1u) != 0;
}

Row hadamard(const Row& x, uint64_t seed) {
  size_t block = 1;
  while (x.size() % (2 * block) == 0) block *= 2;
  Row result(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t k = 0; k < block; ++k) {
      const size_t from = i / block * block + k;
      const bool minus = (__builtin_popcountll(i % block & k) & 1) != 0;
      result[i] += (minus != negative(seed, from) ? -1 : 1) * x[from];
    }
    result[i] /= std::sqrt(static_cast<double>(block));
  }
  return result;
}

class Judge {
 public:
  Judge(const Job& job, const Operand& operand, const char* name, bool of_query, bool is_value)
      : job_(job),
        c_(job.c),
        o_(operand),
        name_(name),
        side_(side(job.c, of_query)),
        is_value_(is_value),
        heads_(of_query ? job.c.query_heads : job.c.key_heads),
        columns_(is_value ? job.c.value_dim : job.c.head_dim),
        target_seen_(operand.target.bytes.size()),
        scale_seen_(operand.scale.bytes.size()),
        mean_seen_(job.value_mean.bytes.size()) {
    const tandem::Quantization& q = c_.quantization;
    granularity_ = is_value ? q.value : of_query ? q.query : q.key;
    block_ = is_value ? q.value_rows : of_query ? q.query_rows : q.key_rows;
    largest_ = o_.target.spec.dtype == Dtype::int8 ? 127 : 448;
  }

  std::string judge() {
    if (is_value_ && c_.quantization.value_mean) judge_means();
    rows_.resize(static_cast<size_t>(side_.batch * heads_));
    for (int64_t b = 0; b < side_.batch; ++b)
      for (int64_t h = 0; h < heads_; ++h)
        for (int64_t r = 0; r < side_.count(b); ++r) head(b, h).push_back(prepared(b, h, r));
    if (granularity_ == Granularity::tensor) judge_tensor();
    for (int64_t b = 0; b < side_.batch; ++b)
      for (int64_t h = 0; h < heads_; ++h) judge_head(b, h);
    expect_guards(o_.target, target_seen_, "the tensor");
    expect_guards(o_.scale, scale_seen_, "the scales");
    if (is_value_ && job_.value_mean.present()) expect_guards(job_.value_mean, mean_seen_, "the means");
    return text_;
  }

 private:
  using Seen = std::vector<bool>;

  std::vector<Row>& head(int64_t b, int64_t h) { return rows_[static_cast<size_t>(b * heads_ + h)]; }

  template <class... Values>
  void fault(const char* format, Values... values) {
    if (++faults_ > 3) return;
    char line[300];
    std::snprintf(line, sizeof line, format, values...);
    text_ += std::string(name_) + ": " + line + "\n";
  }

  static void see(Seen& seen, int64_t offset, size_t bytes) {
    for (size_t n = 0; n < bytes; ++n) seen[Blob::front + static_cast<size_t>(offset) * bytes + n] = true;
  }
  void expect_guards(const Blob& blob, const Seen& seen, const char* what) {
    for (size_t n = 0; n < seen.size(); ++n)
      if (!seen[n] && blob.bytes[n] != Blob::guard)
        return fault("byte %zu outside %s was written", n - Blob::front, what);
  }

  double source(int64_t b, int64_t h, int64_t r, int64_t i) const {
    const uint16_t bits =
        side_.packed() ? o_.source.at<uint16_t>({side_.first(b) + r, h, i}) : o_.source.at<uint16_t>({b, r, h, i});
    return widen(bits, c_.dtype);
  }

  double mean(int64_t b, int64_t h, int64_t i) const {
    double sum = 0;
    for (int64_t r = 0; r < side_.count(b); ++r)
      if (const double x = source(b, h, r, i); std::isfinite(x)) sum += x;
    return sum / static_cast<double>(std::max<int64_t>(1, side_.count(b)));
  }

  void judge_means() {
    const bool known = c_.quantization.known_mean;
    for (int64_t b = 0; b < side_.batch; ++b) {
      for (int64_t h = 0; h < heads_; ++h) {
        for (int64_t i = 0; i < columns_; ++i) {
          const double expected = known ? known_mean((b * heads_ + h) * columns_ + i) : mean(b, h, i);
          const double found = job_.value_mean.at<float>({b, h, i});
          see(mean_seen_, job_.value_mean.offset({b, h, i}), 4);
          double most = 1e-30;
          for (int64_t r = 0; r < side_.count(b); ++r)
            if (const double x = std::fabs(source(b, h, r, i)); std::isfinite(x)) most = std::max(most, x);
          if (!(std::fabs(found - expected) <= (known ? 0 : slack * most)))
            fault("the mean of channel %d of head %d is %g, not %g", static_cast<int>(i), static_cast<int>(h), found,
                  expected);
        }
      }
    }
  }

  /// A row as it is before it is scaled.
  Row prepared(int64_t b, int64_t h, int64_t r) const {
    Row x(static_cast<size_t>(columns_));
    for (int64_t i = 0; i < columns_; ++i) x[static_cast<size_t>(i)] = source(b, h, r, i);
    if (is_value_) {
      for (int64_t i = 0; i < columns_ && c_.quantization.value_mean; ++i)
        x[static_cast<size_t>(i)] -= job_.value_mean.at<float>({b, h, i});
      return x;
    }
    const tandem::Rope& rope = c_.rope;
    const int64_t position = r + (rope.positions ? job_.position[static_cast<size_t>(b)] : 0);
    for (int i = 0; i < rope.dims / 2; ++i) {
      const double cos = job_.rope_cos.at<float>({position, i}), sin = job_.rope_sin.at<float>({position, i});
      double& first = x[static_cast<size_t>(rope.interleaved ? 2 * i : i)];
      double& second = x[static_cast<size_t>(rope.interleaved ? 2 * i + 1 : i + rope.dims / 2)];
      const double turned = first * cos - second * sin;
      second = second * cos + first * sin;
      first = turned;
    }
    return c_.quantization.hadamard ? hadamard(x, c_.quantization.sign_seed) : x;
  }

  static double magnitude(const std::vector<Row>& rows, size_t begin, size_t end) {
    double result = 0;
    for (size_t r = begin; r < std::min(end, rows.size()); ++r)
      for (const double x : rows[r])
        if (std::isfinite(x)) result = std::max(result, std::fabs(x));
    return result;
  }

  void judge_scale(float found, double magnitude, bool power_of_two) {
    const double exact = magnitude / largest_;
    if (magnitude == 0) {
      if (found != 1) fault("the scale of zeros is %g, not 1", found);
      return;
    }
    if (exact < 0x1p-126) {
      if (found != 0x1p-126F) fault("the scale of subnormal numbers is %g, not the smallest normal one", found);
      return;
    }
    int exponent = 0;
    const bool right = power_of_two ? std::frexp(found, &exponent) == 0.5 && found >= exact * (1 - slack) &&
                                          found <= 2 * exact * (1 + slack)
                                    : std::fabs(found / exact - 1) <= slack;
    if (!right) fault("the scale is %g, but the magnitude %g asks for %g", found, magnitude, exact);
  }

  void judge_tensor() {
    double most = 0;
    for (const std::vector<Row>& rows : rows_) most = std::max(most, magnitude(rows, 0, rows.size()));
    if (o_.amax.present()) most = o_.amax.at<float>({0});
    judge_scale(o_.scale.at<float>({0}), most, false);
    see(scale_seen_, 0, 4);
  }

  void judge_head(int64_t b, int64_t h) {
    const std::vector<Row>& rows = head(b, h);
    double scale = 1;
    if (granularity_ == Granularity::tensor) scale = o_.scale.at<float>({0});
    if (granularity_ == Granularity::head) {
      scale = o_.scale.at<float>({b, h});
      judge_scale(static_cast<float>(scale),
                  o_.amax.present() ? o_.amax.at<float>({b, h}) : magnitude(rows, 0, rows.size()), false);
      see(scale_seen_, o_.scale.offset({b, h}), 4);
    }
    for (int64_t r = 0; r < side_.room(b); ++r) {
      if (granularity_ == Granularity::block && r % block_ == 0) {
        const int64_t n = r / block_, first = side_.first(b) / block_ + b;
        const int64_t at = side_.packed() ? o_.scale.offset({h, first + n}) : o_.scale.offset({b, h, n});
        scale = reinterpret_cast<const float*>(o_.scale.bytes.data() + Blob::front)[at];
        judge_scale(static_cast<float>(scale), magnitude(rows, static_cast<size_t>(r), static_cast<size_t>(r + block_)),
                    is_value_);
        see(scale_seen_, at, 4);
      }
      judge_row(b, h, r, r < side_.count(b) ? rows[static_cast<size_t>(r)] : Row(static_cast<size_t>(columns_)), scale);
    }
    // The last group of a packed value is filled up.
    for (int64_t r = side_.room(b); groups() && r % 16 != 0; ++r)
      judge_row(b, h, r, Row(static_cast<size_t>(columns_)), 1);
  }

  bool groups() const { return is_value_ && c_.quantization.value_layout == tandem::ValueLayout::packed; }

  int64_t place(int64_t b, int64_t h, int64_t r, int64_t i) const {
    if (groups()) {
      // Of keys 0 to 15: 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15 is their order.
      static constexpr int places[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
      const int64_t group = r / 16, within = places[r % 16];
      if (!side_.packed()) return o_.target.offset({b, h, group, i, within});
      return o_.target.offset({h, side_.first(b) / 16 + b + group, i, within});
    }
    return side_.packed() ? o_.target.offset({side_.first(b) + r, h, i}) : o_.target.offset({b, r, h, i});
  }

  void judge_row(int64_t b, int64_t h, int64_t r, const Row& x, double scale) {
    double most = 0;
    for (const double one : x)
      if (std::isfinite(one)) most = std::max(most, std::fabs(one));
    for (int64_t i = 0; i < columns_; ++i) {
      const int64_t at = place(b, h, r, i);
      see(target_seen_, at, 1);
      const uint8_t bits = o_.target.bytes[Blob::front + static_cast<size_t>(at)];
      if (!right(bits, x[static_cast<size_t>(i)], scale, most))
        fault("element (%d, %d, %d, %d) is 0x%02x times %g, but should be %g", static_cast<int>(b), static_cast<int>(r),
              static_cast<int>(h), static_cast<int>(i), bits, scale, x[static_cast<size_t>(i)]);
    }
  }

  bool right(uint8_t bits, double x, double scale, double most) const {
    const bool integer = o_.target.spec.dtype == Dtype::int8;
    if (std::isnan(x)) return integer ? bits == 0 : bits == 0x7f;
    const double stored = integer ? static_cast<int8_t>(bits) : tandem::to_float(tandem::e4m3{bits});
    const double wanted = std::clamp(x / scale, -largest_, largest_);
    // Half a unit of the last place: of three bits of mantissa, or of the smallest exponent.
    const double half = integer ? 0.5 : std::max(std::fabs(wanted) / 16, 0x1p-10);
    return std::fabs(stored - wanted) <= half + slack * std::max(most / scale, 1.0);
  }

  const Job& job_;
  const Case& c_;
  const Operand& o_;
  const char* name_;
  const Side side_;
  const bool is_value_;
  const int64_t heads_, columns_;
  Granularity granularity_ = Granularity::block;
  int64_t block_ = 0;
  double largest_ = 0;
  std::vector<std::vector<Row>> rows_;  // of each head
  Seen target_seen_, scale_seen_, mean_seen_;
  std::string text_;
  int faults_ = 0;
};

}  // namespace

std::string judge(const Job& job) {
  std::string text;
  if (job.c.query) text += Judge(job, job.query, "query", true, false).judge();
  if (job.c.key) text += Judge(job, job.key, "key", false, false).judge();
  if (job.c.value) text += Judge(job, job.value, "value", false, true).judge();
  return text;
}

}  // namespace quantize_support
