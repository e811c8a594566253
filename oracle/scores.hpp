// What the oracle's forward and backward passes have in common: the probabilities of one query row, in float64 or in
// the float32 of the standard computation.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "oracle/oracle.hpp"

namespace oracle {

template <class Real>
Real dot(const Real* a, const Real* b, int64_t n) {
  Real sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}

template <class Real>
void add_scaled(Real* to, Real factor, const Real* from, int64_t n) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) to[c] += factor * from[c];
}

template <class Real>
std::vector<Real> load(const Tensor& tensor, int64_t batch, int64_t row, int64_t head, int64_t columns) {
  std::vector<Real> values(columns);
  for (int64_t c = 0; c < columns; ++c) values[c] = static_cast<Real>(tensor.at(batch, row, head, c));
  return values;
}

/// The score of a product of query and key: scaled, then capped (the mask comes after).
template <class Real>
Real score(const Problem& problem, Real product) {
  const Real scaled = product * static_cast<Real>(problem.scale);
  if (problem.softcap <= 0) return scaled;
  const Real cap = static_cast<Real>(problem.softcap);
  return cap * std::tanh(scaled / cap);
}

/// Turns the scores of the seen keys into probabilities in place; returns the log-sum-exp, which counts the sink.
template <class Real>
Real softmax(std::vector<Real>& scores, const std::vector<char>& seen, const float* sink) {
  Real largest = -std::numeric_limits<Real>::infinity();
  bool any = false;
  for (size_t j = 0; j < scores.size(); ++j) {
    if (seen[j] == 0) continue;
    any = true;
    largest = std::max(largest, scores[j]);
  }
  if (!any) {
    std::fill(scores.begin(), scores.end(), Real(0));
    return -std::numeric_limits<Real>::infinity();
  }
  if (sink != nullptr) largest = std::max(largest, static_cast<Real>(*sink));
  Real sum = sink != nullptr ? std::exp(static_cast<Real>(*sink) - largest) : 0;
  for (size_t j = 0; j < scores.size(); ++j) {
    scores[j] = seen[j] != 0 ? std::exp(scores[j] - largest) : 0;
    sum += scores[j];
  }
  for (Real& p : scores) p /= sum;
  return largest + std::log(sum);
}

}  // namespace oracle
