// The oracle's backward pass: for each query row dV += p dO, dS = p (dO V - D) with D = rowsum(dO * O), dQ and dK from
// dS. The standard computation rounds P and dS to the tensors' type before they are multiplied, and the results at the
// end; sums over rows and over the query heads of a group stay in float32.
#include "oracle/scores.hpp"

namespace oracle {
namespace {

template <class Real>
struct Sums {
  std::vector<Real> query, key, value;
};

/// The keys, values and gradients of one sequence and key head.
template <class Real>
struct Side {
  std::vector<std::vector<Real>> key, value;
};

template <class Real>
void backward_row(const Problem& problem, const Sequence& sequence, int64_t b, int64_t h, int64_t i,
                  const Side<Real>& side, const Tensor& grad_out, bool rounded, Real* grad_query, Real* grad_key,
                  Real* grad_value) {
  const Type type = problem.query.type;
  const auto narrowed = [&](Real x) { return rounded ? static_cast<Real>(round_to(x, type)) : x; };
  const int64_t dim = problem.head_dim, value_dim = problem.value_dim;
  const int64_t key_stride = problem.key_heads * dim, value_stride = problem.key_heads * value_dim;
  const auto query = load<Real>(problem.query, b, sequence.first_query + i, h, dim);
  std::vector<Real> p(sequence.keys);
  std::vector<char> seen(sequence.keys);
  std::vector<Real> capped(sequence.keys);
  for (int64_t j = 0; j < sequence.keys; ++j) {
    if (!sees(problem, sequence, i, j)) continue;
    seen[j] = 1;
    p[j] = capped[j] = score(problem, dot(query.data(), side.key[j].data(), dim));
  }
  if (std::find(seen.begin(), seen.end(), 1) == seen.end()) return;
  softmax(p, seen, problem.sinks != nullptr ? problem.sinks + h : nullptr);
  const auto gradient = load<Real>(grad_out, b, sequence.first_query + i, h, value_dim);
  std::vector<Real> out(value_dim);
  for (int64_t j = 0; j < sequence.keys; ++j) {
    if (seen[j] != 0) add_scaled(out.data(), narrowed(p[j]), side.value[j].data(), value_dim);
  }
  for (Real& x : out) x = narrowed(x);
  const Real delta = dot(out.data(), gradient.data(), value_dim);
  for (int64_t j = 0; j < sequence.keys; ++j) {
    if (seen[j] == 0) continue;
    Real grad_score = p[j] * (dot(gradient.data(), side.value[j].data(), value_dim) - delta);
    if (problem.softcap > 0) {
      const Real ratio = capped[j] / static_cast<Real>(problem.softcap);
      grad_score *= 1 - ratio * ratio;
    }
    grad_score = narrowed(grad_score);
    const Real scaled = grad_score * static_cast<Real>(problem.scale);
    add_scaled(grad_query, scaled, side.key[j].data(), dim);
    add_scaled(grad_key + j * key_stride, scaled, query.data(), dim);
    add_scaled(grad_value + j * value_stride, narrowed(p[j]), gradient.data(), value_dim);
  }
}

template <class Real>
Gradients backward_in(const Problem& problem, const Tensor& grad_out, bool rounded) {
  int64_t queries = 0, keys = 0;
  for (const Sequence& s : problem.sequences) {
    queries += s.queries;
    keys += s.keys;
  }
  const int64_t dim = problem.head_dim, value_dim = problem.value_dim;
  Sums<Real> sums{std::vector<Real>(queries * problem.query_heads * dim),
                  std::vector<Real>(keys * problem.key_heads * dim),
                  std::vector<Real>(keys * problem.key_heads * value_dim)};
  int64_t query_row = 0, key_row = 0;
  for (size_t b = 0; b < problem.sequences.size(); ++b) {
    const Sequence& sequence = problem.sequences[b];
    for (int64_t key_head = 0; key_head < problem.key_heads; ++key_head) {
      Side<Real> side;
      for (int64_t j = 0; j < sequence.keys; ++j) {
        side.key.push_back(load<Real>(problem.key, b, sequence.first_key + j, key_head, dim));
        side.value.push_back(load<Real>(problem.value, b, sequence.first_key + j, key_head, value_dim));
      }
      const int64_t group = problem.query_heads / problem.key_heads;
      for (int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
        for (int64_t i = 0; i < sequence.queries; ++i) {
          backward_row(problem, sequence, b, h, i, side, grad_out, rounded,
                       sums.query.data() + ((query_row + i) * problem.query_heads + h) * dim,
                       sums.key.data() + (key_row * problem.key_heads + key_head) * dim,
                       sums.value.data() + (key_row * problem.key_heads + key_head) * value_dim);
        }
      }
    }
    query_row += sequence.queries;
    key_row += sequence.keys;
  }
  const auto finish = [&](const std::vector<Real>& from) {
    std::vector<double> to(from.begin(), from.end());
    if (rounded) {
      for (double& x : to) x = round_to(x, problem.query.type);
    }
    return to;
  };
  return {finish(sums.query), finish(sums.key), finish(sums.value)};
}

}  // namespace

Gradients backward(const Problem& problem, const Tensor& grad_out, Arithmetic arithmetic) {
  return arithmetic == Arithmetic::exact ? backward_in<double>(problem, grad_out, false)
                                         : backward_in<float>(problem, grad_out, true);
}

}  // namespace oracle
