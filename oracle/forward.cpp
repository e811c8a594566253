// The oracle's forward pass. Rows that share keys are computed in groups, so that each key is converted once a group.
#include <map>
#include <utility>

#include "oracle/scores.hpp"

namespace oracle {
namespace {

constexpr size_t group_rows = 32;  // bounds memory: this many rows of scores at once

template <class Real>
struct Working {
  std::vector<Real> query, scores, sum, absolute;
  std::vector<char> seen;
};

/// Computes rows of one batch entry that share a key head.
template <class Real>
void forward_group(const Problem& problem, const std::vector<RowIndex>& rows, const std::vector<size_t>& group,
                   bool rounded, std::vector<Row>& results) {
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
      if (rounded) p = static_cast<Real>(round_to(p, problem.value.type));
      add_scaled(work[r].sum.data(), p, value.data(), problem.value_dim);
      add_scaled(work[r].absolute.data(), p, absolute.data(), problem.value_dim);
    }
  }
  for (size_t r = 0; r < group.size(); ++r) {
    Row& result = results[group[r]];
    result.out.assign(work[r].sum.begin(), work[r].sum.end());
    for (Real a : work[r].absolute) result.magnitude = std::max(result.magnitude, static_cast<double>(a));
    if (rounded) {
      for (double& x : result.out) x = round_to(x, problem.value.type);
    }
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
      if (arithmetic == Arithmetic::exact) {
        forward_group<double>(problem, rows, group, false, results);
      } else {
        forward_group<float>(problem, rows, group, true, results);
      }
    }
  }
  return results;
}

Row forward_row(const Problem& problem, const RowIndex& row, Arithmetic arithmetic) {
  return forward(problem, {row}, arithmetic)[0];
}

}  // namespace oracle
