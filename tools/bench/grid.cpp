// The paper's grid.
#include "tools/bench/grid.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::tools {

std::string BenchCase::name() const {
  return fmt::format("{} {} d{} {} {}", pass == Pass::forward ? "forward" : "backward", tandem::name(dtype), head_dim,
                     causal ? "causal" : "full", seqlen);
}

double BenchCase::flop() const {
  const auto length = static_cast<double>(seqlen);
  const double all = 4 * static_cast<double>(batch * heads * head_dim) * length * length;
  return all * (causal ? 0.5 : 1.0) * (pass == Pass::backward ? 2.5 : 1.0);
}

std::vector<BenchCase> cases_of(const Grid& grid) {
  std::vector<BenchCase> cases;
  for (const int64_t dim : grid.head_dims) {
    for (const bool causal : grid.masks) {
      for (const int64_t length : grid.lengths) {
        cases.push_back({grid.backward ? Pass::backward : Pass::forward, grid.dtype, dim, causal, length,
                         std::max<int64_t>(1, grid.tokens / length), std::max<int64_t>(1, grid.hidden / dim)});
      }
    }
  }
  return cases;
}

}  // namespace tandem::tools
