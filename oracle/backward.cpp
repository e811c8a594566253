// The oracle's backward pass: for each query row dV += p dO, dS = p (dO V - D) with D = rowsum(dO * O), dQ and dK from
// dS. The standard computation rounds P and dS to the tensors' type before they are multiplied, and the results at the
// end; sums over rows and over the query heads of a group stay in float32.
#include "oracle/scores.hpp"

namespace oracle {
namespace {

/// The keys and values of one sequence and key head, and what its query rows add up.
template <class Real>
struct Side {
  std::vector<std::vector<Real>> key, value;
  Real *grad_key, *grad_value;                         // of the first key; the next is a row of all key heads further
  std::vector<double> key_magnitude, value_magnitude;  // of each key
};

template <class Real>
double norm(const std::vector<Real>& x) {
  return std::sqrt(static_cast<double>(dot(x.data(), x.data(), static_cast<int64_t>(x.size()))));
}

/// Adds what one query row gives; returns the magnitude of its own gradient.
template <class Real>
double backward_row(const Problem& problem, const Sequence& sequence, const RowIndex& row, const Tensor& grad_out,
                    bool rounded, Side<Real>& side, Real* grad_query) {
  const Type type = problem.query.type;
  const auto narrowed = [&](Real x) { return rounded ? static_cast<Real>(round_to(x, type)) : x; };
  const int64_t dim = problem.head_dim, value_dim = problem.value_dim, at = sequence.first_query + row.query;
  const auto query = load<Real>(problem.query, row.batch, at, row.head, dim);
  std::vector<Real> p(sequence.keys), capped(sequence.keys);
  std::vector<char> seen(sequence.keys);
  double largest_score = 0;
  for (int64_t j = 0; j < sequence.keys; ++j) {
    if (!sees(problem, sequence, row.query, j)) continue;
    seen[j] = 1;
    p[j] = capped[j] = score(problem, dot(query.data(), side.key[j].data(), dim));
    largest_score = std::max(largest_score, static_cast<double>(std::abs(p[j])));
  }
  if (std::find(seen.begin(), seen.end(), 1) == seen.end()) return 0;
  softmax(p, seen, problem.sinks != nullptr ? problem.sinks + row.head : nullptr);
  const auto gradient = load<Real>(grad_out, row.batch, at, row.head, value_dim);
  std::vector<Real> out(value_dim);
  for (int64_t j = 0; j < sequence.keys; ++j) {
    if (seen[j] != 0) add_scaled(out.data(), narrowed(p[j]), side.value[j].data(), value_dim);
  }
  for (Real& x : out) x = narrowed(x);
  const Real delta = dot(out.data(), gradient.data(), value_dim);
  const double gradient_norm = norm(gradient), out_norm = norm(out), query_norm = norm(query);
  double magnitude = 0;
  for (int64_t j = 0; j < sequence.keys; ++j) {
    if (seen[j] == 0) continue;
    Real grad_score = p[j] * (dot(gradient.data(), side.value[j].data(), value_dim) - delta);
    if (problem.softcap > 0) {
      const Real ratio = capped[j] / static_cast<Real>(problem.softcap);
      grad_score *= 1 - ratio * ratio;
    }
    const Real scaled = narrowed(grad_score) * static_cast<Real>(problem.scale);
    add_scaled(grad_query, scaled, side.key[j].data(), dim);
    add_scaled(side.grad_key + j * problem.key_heads * dim, scaled, query.data(), dim);
    add_scaled(side.grad_value + j * problem.key_heads * value_dim, narrowed(p[j]), gradient.data(), value_dim);
    // An error of a score is a relative error of its probability.
    const double weight = p[j] * (1 + largest_score / 4);
    const double term = weight * gradient_norm * (norm(side.value[j]) + out_norm) * std::abs(problem.scale);
    magnitude += term * norm(side.key[j]);
    side.key_magnitude[j] += term * query_norm;
    side.value_magnitude[j] += weight * gradient_norm;
  }
  return magnitude;
}

template <class Real>
Gradients backward_in(const Problem& problem, const Tensor& grad_out, bool rounded) {
  int64_t queries = 0, keys = 0;
  for (const Sequence& s : problem.sequences) {
    queries += s.queries;
    keys += s.keys;
  }
  const int64_t dim = problem.head_dim, value_dim = problem.value_dim;
  std::vector<Real> grad_query(queries * problem.query_heads * dim), grad_key(keys * problem.key_heads * dim),
      grad_value(keys * problem.key_heads * value_dim);
  Gradients gradients;
  const auto keep_largest = [](double& to, double from) {
    if (std::isfinite(from)) to = std::max(to, from);
  };
  int64_t query_row = 0, key_row = 0;
  for (size_t b = 0; b < problem.sequences.size(); ++b) {
    const Sequence& sequence = problem.sequences[b];
    for (int64_t key_head = 0; key_head < problem.key_heads; ++key_head) {
      Side<Real> side;
      side.grad_key = grad_key.data() + (key_row * problem.key_heads + key_head) * dim;
      side.grad_value = grad_value.data() + (key_row * problem.key_heads + key_head) * value_dim;
      side.key_magnitude.assign(sequence.keys, 0);
      side.value_magnitude.assign(sequence.keys, 0);
      for (int64_t j = 0; j < sequence.keys; ++j) {
        side.key.push_back(load<Real>(problem.key, b, sequence.first_key + j, key_head, dim));
        side.value.push_back(load<Real>(problem.value, b, sequence.first_key + j, key_head, value_dim));
      }
      const int64_t group = problem.query_heads / problem.key_heads;
      for (int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
        for (int64_t i = 0; i < sequence.queries; ++i) {
          Real* row = grad_query.data() + ((query_row + i) * problem.query_heads + h) * dim;
          const RowIndex index{static_cast<int64_t>(b), h, i};
          keep_largest(gradients.query_magnitude, backward_row(problem, sequence, index, grad_out, rounded, side, row));
        }
      }
      for (double x : side.key_magnitude) keep_largest(gradients.key_magnitude, x);
      for (double x : side.value_magnitude) keep_largest(gradients.value_magnitude, x);
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
  gradients.query = finish(grad_query);
  gradients.key = finish(grad_key);
  gradients.value = finish(grad_value);
  return gradients;
}

}  // namespace

Gradients backward(const Problem& problem, const Tensor& grad_out, Arithmetic arithmetic) {
  return arithmetic == Arithmetic::exact ? backward_in<double>(problem, grad_out, false)
                                         : backward_in<float>(problem, grad_out, true);
}

}  // namespace oracle
