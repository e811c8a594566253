// The oracle's forward pass. Rows that share keys are computed in groups, so that each key is converted once a group.
#include <map>
#include <utility>

#include "oracle/scores.hpp"

namespace oracle {
namespace {

constexpr size_t group_rows = 32;  // bounds memory: this many rows of scores at once

/// What e4m3 holds of a probability, times the scale of its value, is that number over this unit: relative to a power
/// of two in the exponentials of the scores themselves, chosen to make the largest of a row 4 to 8. (FA-3 section 3.3
/// leaves the choice open; an integer exponent keeps rounding in place when it moves.)
double probability_unit(const Problem& problem, const RowIndex& row, int64_t key_head, const std::vector<double>& p,
                        double lse) {
  const Sequence& sequence = problem.sequences[row.batch];
  double largest = 0;
  for (size_t j = 0; j < p.size(); ++j) {
    if (!(p[j] > 0)) continue;
    const int64_t key = sequence.first_key + static_cast<int64_t>(j);
    largest = std::max(largest, p[j] * problem.value_scale.at(row.batch, key, key_head, 0));
  }
  if (!(largest > 0)) return 1;
  const double whole = lse / std::log(2.0);
  return std::exp2(std::ceil(std::log2(largest) + whole) - 3 - whole);
}

template <class Real>
struct Working {
  std::vector<Real> query, scores, sum, absolute;
  std::vector<char> seen;
  double share = 0;  // the part of the softmax that keys have: 1 without a sink
  double unit = 1;   // see probability_unit
};

/// Adds the value's mean and rounds the result as the arithmetic asks.
void finish(const Problem& problem, const RowIndex& row, int64_t key_head, double share, Arithmetic arithmetic,
            std::vector<double>& out) {
  if (problem.value_mean.data != nullptr && share > 0) {
    for (int64_t c = 0; c < problem.value_dim; ++c) out[c] += share * problem.value_mean.at(row.batch, 0, key_head, c);
  }
  if (arithmetic == Arithmetic::standard) {
    for (double& x : out) x = round_to(x, problem.value.type);
  } else if (arithmetic == Arithmetic::quantised) {
    for (double& x : out) x = round_to(x / problem.out_scale, problem.out_type) * problem.out_scale;
  }
}

/// Computes rows of one batch entry that share a key head.
template <class Real>
void forward_group(const Problem& problem, const std::vector<RowIndex>& rows, const std::vector<size_t>& group,
                   Arithmetic arithmetic, std::vector<Row>& results) {
  const int64_t b = rows[group[0]].batch;
  const int64_t key_head = rows[group[0]].head / (problem.query_heads / problem.key_heads);
  const Sequence& sequence = problem.sequences[b];
  std::vector<Working<Real>> work(group.size());
  for (size_t r = 0; r < group.size(); ++r) {
    const RowIndex& row = rows[group[r]];
    work[r].query = load<Real>(problem.query, b, sequence.first_query + row.query, row.head, problem.head_dim);
    work[r].scores.assign(sequence.keys, 0);
    work[r].seen.assign(sequence.keys, 0);
    work[r].sum.assign(problem.value_dim, 0);
    work[r].absolute.assign(problem.value_dim, 0);
  }
  // A key that no row sees is never read: it may be garbage.
  for (int64_t j = 0; j < sequence.keys; ++j) {
    std::vector<Real> key;
    for (size_t r = 0; r < group.size(); ++r) {
      if (!sees(problem, sequence, rows[group[r]].query, j)) continue;
      if (key.empty()) key = load<Real>(problem.key, b, sequence.first_key + j, key_head, problem.head_dim);
      work[r].seen[j] = 1;
      work[r].scores[j] = score(problem, dot(work[r].query.data(), key.data(), problem.head_dim));
      results[group[r]].score = std::max(results[group[r]].score, static_cast<double>(std::abs(work[r].scores[j])));
    }
  }
  for (size_t r = 0; r < group.size(); ++r) {
    const float* sink = problem.sinks != nullptr ? problem.sinks + rows[group[r]].head : nullptr;
    results[group[r]].lse = softmax(work[r].scores, work[r].seen, sink);
    if (arithmetic != Arithmetic::quantised) continue;
    work[r].unit = probability_unit(problem, rows[group[r]], key_head, {work[r].scores.begin(), work[r].scores.end()},
                                    results[group[r]].lse);
  }
  for (int64_t j = 0; j < sequence.keys; ++j) {
    std::vector<Real> value, absolute;
    for (size_t r = 0; r < group.size(); ++r) {
      if (work[r].seen[j] == 0) continue;
      if (value.empty()) {
        value = load<Real>(problem.value, b, sequence.first_key + j, key_head, problem.value_dim);
        absolute = value;
        for (Real& v : absolute) v = std::abs(v);
      }
      Real p = work[r].scores[j];
      if (arithmetic == Arithmetic::standard) p = static_cast<Real>(round_to(p, problem.value.type));
      if (arithmetic == Arithmetic::quantised) {
        const double unit = work[r].unit / problem.value_scale.at(b, sequence.first_key + j, key_head, 0);
        p = static_cast<Real>(round_to(p / unit, Type::e4m3) * unit);
      }
      work[r].share += work[r].scores[j];
      add_scaled(work[r].sum.data(), p, value.data(), problem.value_dim);
      add_scaled(work[r].absolute.data(), p, absolute.data(), problem.value_dim);
    }
  }
  for (size_t r = 0; r < group.size(); ++r) {
    Row& result = results[group[r]];
    result.out.assign(work[r].sum.begin(), work[r].sum.end());
    for (Real a : work[r].absolute) result.magnitude = std::max(result.magnitude, static_cast<double>(a));
    finish(problem, rows[group[r]], key_head, work[r].share, arithmetic, result.out);
  }
}

}  // namespace

std::vector<Row> forward(const Problem& problem, const std::vector<RowIndex>& rows, Arithmetic arithmetic) {
  std::vector<Row> results(rows.size());
  std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> by_keys;
  for (size_t r = 0; r < rows.size(); ++r) {
    by_keys[{rows[r].batch, rows[r].head / (problem.query_heads / problem.key_heads)}].push_back(r);
  }
  for (const auto& [keys, members] : by_keys) {
    for (size_t begin = 0; begin < members.size(); begin += group_rows) {
      const auto first = members.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = members.begin() + static_cast<std::ptrdiff_t>(std::min(begin + group_rows, members.size()));
      const std::vector<size_t> group(first, last);
      if (arithmetic == Arithmetic::standard) {
        forward_group<float>(problem, rows, group, arithmetic, results);
      } else {
        forward_group<double>(problem, rows, group, arithmetic, results);
      }
    }
  }
  return results;
}

Row forward_row(const Problem& problem, const RowIndex& row, Arithmetic arithmetic) {
  return forward(problem, {row}, arithmetic)[0];
}

}  // namespace oracle
