// The oracle's judgement: the public FA-3 suite's rule (at most twice the error of the standard computation), with a
// cosine bound, matching infinities and NaN, and a bound for the log-sum-exp.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "oracle/oracle.hpp"

namespace oracle {
namespace {

[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...) {
  char buffer[320];
  va_list list;
  va_start(list, format);
  std::vsnprintf(buffer, sizeof buffer, format, list);
  va_end(list);
  return buffer;
}

constexpr double float_sum = 0x1p-20;  // relative error of a sum in float32

/// Whether two numbers are of one kind: finite, the same infinity, or NaN.
bool same_kind(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return true;
}

/// Gathers the errors of a tensor, element by element.
class Comparison {
 public:
  Comparison(const char* name, Type type) : name_(name), type_(type) {}

  void add(double computed, double exact, double standard, int64_t b, int64_t h, int64_t i, int64_t c) {
    const double expected = round_to(exact, type_);
    if (!same_kind(computed, expected) && wrong_.empty()) {
      wrong_ = text("%s(batch %ld, row %ld, head %ld, column %ld) is %g but exactly %g", name_, long(b), long(i),
                    long(h), long(c), computed, exact);
    }
    if (!std::isfinite(exact) || !std::isfinite(computed)) return;
    if (std::abs(computed - exact) > error_) {
      error_ = std::abs(computed - exact);
      where_ = text("(batch %ld, row %ld, head %ld, column %ld): %.8g, exactly %.8g", long(b), long(i), long(h),
                    long(c), computed, exact);
    }
    if (std::isfinite(standard)) standard_error_ = std::max(standard_error_, std::abs(standard - exact));
    largest_ = std::max(largest_, std::abs(exact));
    cross_ += computed * exact;
    computed_squares_ += computed * computed;
    exact_squares_ += exact * exact;
    standard_cross_ += standard * exact;
    standard_squares_ += standard * standard;
  }

  /// `accumulated` is the error that the sums of this tensor may carry.
  void finish(double accumulated, Verdict& verdict) const {
    const double rounding = unit_roundoff(type_) * largest_ + accumulated;
    const double bound = 2 * standard_error_ + rounding;
    const double cosine = cosine_of(cross_, computed_squares_),
                 standard = cosine_of(standard_cross_, standard_squares_);
    const double cosine_bound = 1 - 4 * (1 - standard) - std::max(1e-9, 2 * std::pow(unit_roundoff(type_), 2));
    std::string line = text("%s error %.3g (bound %.3g, standard %.3g), cosine 1 - %.2g", name_, error_, bound,
                            standard_error_, 1 - cosine);
    bool ok = true;
    if (!wrong_.empty()) {
      ok = false;
      line = wrong_;
    } else if (!(error_ <= bound)) {
      ok = false;
      line += "; too large at " + where_;
    } else if (!(cosine >= cosine_bound)) {
      ok = false;
      line += text("; the cosine must be at least 1 - %.2g", 1 - cosine_bound);
    }
    verdict.text += (verdict.text.empty() ? "" : "; ") + line;
    verdict.ok = verdict.ok && ok;
    verdict.error = std::max(verdict.error, error_);
    verdict.standard_error = std::max(verdict.standard_error, standard_error_);
    verdict.bound = std::max(verdict.bound, bound);
    verdict.cosine = std::min(verdict.cosine, cosine);
  }

 private:
  double cosine_of(double cross, double squares) const {
    const double norm = std::sqrt(squares) * std::sqrt(exact_squares_);
    if (norm > 0) return cross / norm;
    return 1;  // all zero on one side: the error bound judges it alone
  }

  const char* name_;
  Type type_;
  std::string wrong_, where_;
  double error_ = 0, standard_error_ = 0, largest_ = 0;
  double cross_ = 0, computed_squares_ = 0, exact_squares_ = 0, standard_cross_ = 0, standard_squares_ = 0;
};

}  // namespace

namespace {

/// Against the exact result and the yardstick's; relative errors of a float's sums for the result and for the LSE.
Verdict judge_rows(const Problem& problem, const std::vector<RowIndex>& rows, const Tensor& out, Type out_type,
                   const Tensor& lse, Arithmetic yardstick, double accumulation, double lse_accumulation) {
  const std::vector<Row> exact = forward(problem, rows, Arithmetic::exact);
  const std::vector<Row> standard = forward(problem, rows, yardstick);
  Comparison comparison("out", out_type);
  Verdict verdict;
  double magnitude = 0, lse_standard = 0, score = 0;
  std::string lse_wrong;
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto [b, h, i] = rows[r];
    const int64_t at = problem.sequences[b].first_query + i;
    for (int64_t c = 0; c < problem.value_dim; ++c) {
      comparison.add(out.at(b, at, h, c), exact[r].out[c], standard[r].out[c], b, h, at, c);
    }
    if (std::isfinite(exact[r].magnitude)) magnitude = std::max(magnitude, exact[r].magnitude);
    if (std::isfinite(exact[r].score)) score = std::max(score, exact[r].score);
    if (lse.data == nullptr) continue;
    const double computed = lse.at(b, at, h, 0);
    if (!same_kind(computed, round_to(exact[r].lse, Type::fp32)) && lse_wrong.empty()) {
      lse_wrong = text("lse(batch %ld, head %ld, row %ld) is %g but exactly %g", long(b), long(h), long(at), computed,
                       exact[r].lse);
    }
    if (!std::isfinite(computed) || !std::isfinite(exact[r].lse)) continue;
    verdict.lse_error = std::max(verdict.lse_error, std::abs(computed - exact[r].lse));
    if (std::isfinite(standard[r].lse)) {
      lse_standard = std::max(lse_standard, std::abs(standard[r].lse - exact[r].lse));
    }
  }
  // A float32 score carries an error of some roundoffs of its size, which is a relative error of its probability.
  comparison.finish(magnitude * (1 + score / 4) * accumulation, verdict);
  if (lse.data == nullptr) return verdict;
  const double lse_bound = 2 * lse_standard + lse_accumulation * (1 + score);
  verdict.text += text("; lse error %.3g (bound %.3g)", verdict.lse_error, lse_bound);
  if (!lse_wrong.empty() || !(verdict.lse_error <= lse_bound)) {
    verdict.ok = false;
    verdict.text += lse_wrong.empty() ? "; the lse error is too large" : "; " + lse_wrong;
  }
  return verdict;
}

}  // namespace

Verdict judge_forward(const Problem& problem, const std::vector<RowIndex>& rows, const Tensor& out, const Tensor& lse) {
  return judge_rows(problem, rows, out, out.type, lse, Arithmetic::standard, float_sum, 4 * float_sum);
}

Verdict judge_quantised(const Problem& problem, const std::vector<RowIndex>& rows, const Tensor& out, const Tensor& lse,
                        double accumulation) {
  return judge_rows(problem, rows, out, problem.out_type, lse, Arithmetic::quantised, accumulation, accumulation);
}

namespace {

void compare_gradient(const char* name, const Problem& problem, const Tensor& computed, bool of_query, int64_t columns,
                      const std::vector<double>& exact, const std::vector<double>& standard, double magnitude,
                      Verdict& verdict) {
  if (computed.data == nullptr) return;
  Comparison comparison(name, computed.type);
  const int64_t heads = of_query ? problem.query_heads : problem.key_heads;
  size_t at = 0;
  for (size_t b = 0; b < problem.sequences.size(); ++b) {
    const Sequence& s = problem.sequences[b];
    const int64_t first = of_query ? s.first_query : s.first_key;
    const int64_t rows = of_query ? s.queries : s.keys;
    for (int64_t i = first; i < first + rows; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t c = 0; c < columns; ++c, ++at) {
          const int64_t batch = static_cast<int64_t>(b);
          comparison.add(computed.at(batch, i, h, c), exact[at], standard[at], batch, h, i, c);
        }
      }
    }
  }
  comparison.finish(float_sum * magnitude, verdict);
}

}  // namespace

Verdict judge_backward(const Problem& problem, const Tensor& grad_out, const Tensor& grad_query, const Tensor& grad_key,
                       const Tensor& grad_value) {
  const Gradients exact = backward(problem, grad_out, Arithmetic::exact);
  const Gradients standard = backward(problem, grad_out, Arithmetic::standard);
  Verdict verdict;
  compare_gradient("grad_query", problem, grad_query, true, problem.head_dim, exact.query, standard.query,
                   exact.query_magnitude, verdict);
  compare_gradient("grad_key", problem, grad_key, false, problem.head_dim, exact.key, standard.key, exact.key_magnitude,
                   verdict);
  compare_gradient("grad_value", problem, grad_value, false, problem.value_dim, exact.value, standard.value,
                   exact.value_magnitude, verdict);
  return verdict;
}

}  // namespace oracle
