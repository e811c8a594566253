// Timing of one case of the grid, beside the ceiling and standard attention.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/cublas.hpp"
#include "tools/bench/grid.hpp"
#include "tools/bench/standard_attention.hpp"
#include "tools/memory.hpp"

namespace tandem::tools {

struct Timing {
  double median = 0;  // seconds a run
  double spread = 0;  // (90th percentile - 10th) / median
};

/// Warms up, then takes `samples` of as many runs as make one long enough for the clock.
Timing measure(Memory& memory, int samples, const std::function<void()>& enqueue);

/// Fills a buffer with normal numbers; the same block again and again, which no kernel can profit from.
void fill_random(Memory& memory, const Buffer& buffer, Dtype dtype, uint64_t seed);

/// A row of the results; TFLOP/s, absent where it couldn't be measured.
struct BenchRow {
  BenchCase problem;
  std::optional<double> tandem, standard, cublas;
  double spread = 0;
  std::string note;
  std::string kernel = {};  // of the ablation; empty: the library's choice
};

/// The plan of a dense problem; `make` is the library's plan() or an ablation's.
using MakePlan = std::function<Result<Plan>(Pass, const Problem&)>;

class Benchmark {
 public:
  /// Random data for the largest of `cases` is made once.
  Benchmark(Memory& memory, Backend backend, int threads, int samples, const std::vector<BenchCase>& cases);

  BenchRow run(const BenchCase& c);
  /// The same with plans from elsewhere and no peers.
  BenchRow run(const BenchCase& c, const MakePlan& make);
  /// Why there is no ceiling or no standard attention; empty where there is.
  const std::string& cublas_note() const { return cublas_note_; }
  const std::string& standard_note() const { return standard_note_; }

 private:
  Problem problem_of(const BenchCase& c, Arguments* arguments) const;
  Timing time(const BenchCase& c, const MakePlan& make);
  std::optional<double> ceiling(Dtype dtype);
  std::optional<double> standard(const BenchCase& c);

  Memory& memory_;
  Backend backend_;
  int threads_, samples_;
  std::string cublas_note_, standard_note_;
  std::unique_ptr<Cublas> cublas_;
  std::unique_ptr<StandardAttention> standard_;
  // query, key, value, out, grad_out, grad_query, grad_key, grad_value; then the log-sum-exp
  std::vector<Buffer> tensors_;
  Buffer lse_;
};

}  // namespace tandem::tools
