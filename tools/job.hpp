// One piece of attention work, from tensors in host memory to tensors in host memory, on any backend.
#pragma once

#include <span>
#include <vector>

#include "tools/memory.hpp"
#include "tools/tensor.hpp"

namespace tandem::tools {

/// A problem with its tensors. Those in `problem` are filled in from the tensors when the job is planned.
struct Job {
  Pass pass = Pass::forward;
  Problem problem;
  Tensor query, key, value, out, lse;
  Tensor cu_query, cu_key, used_query, used_key, sinks;
  Tensor grad_out, grad_query, grad_key, grad_value;
  // 8 bits: attending reads scales and mean, quantising writes them beside the quantized tensors.
  Tensor quantized_query, quantized_key, quantized_value;
  Tensor query_scale, key_scale, value_scale, value_mean, out_scale, rope_cos, rope_sin;
};

/// A tensor of a job and where it stands in the library's structs.
struct Role {
  const char* name;
  Tensor Job::*tensor;
  TensorView Arguments::*view;
  TensorSpec Problem::*spec;  // null for those that only Arguments has
  enum class Use { none, read, written } forward, backward, quantize;
  Use use(Pass pass) const { return pass == Pass::backward ? backward : (pass == Pass::quantize ? quantize : forward); }
  bool used(Pass pass) const { return use(pass) != Use::none; }
  bool written(Pass pass) const { return use(pass) == Use::written; }
};
std::span<const Role> roles();

/// Sequences of a job: its lengths, and where they begin in packed tensors (batch entries otherwise).
struct Sequences {
  bool packed_query = false, packed_key = false;
  int64_t batch = 0, max_query = 0, max_key = 0;
  std::vector<int64_t> query_begin, query_count, key_begin, key_count;
};
Sequences sequences(const Job& job);

/// The problem with every spec taken from the job's tensors, on `device`.
Problem problem_of(const Job& job, Device device);

/// A job on a device, planned and ready to run any number of times.
class Execution {
 public:
  /// Copies every tensor of the job to `memory`. The workspace begins as poison.
  Execution(const Job& job, Plan plan, Memory& memory);
  const Plan& plan() const { return plan_; }
  Status run();
  /// Copies what the pass writes back into the job's tensors, guard words included.
  void fetch(Job& job) const;

 private:
  Pass pass_;
  Plan plan_;
  Memory& memory_;
  std::vector<Buffer> buffers_;  // one a role; empty where the tensor is absent
  Buffer workspace_;
  Arguments arguments_;
};

/// Scores that the mask lets through, over all sequences and query heads: what FLOP counts are made of.
double visible_scores(const Job& job);
/// 2 (d + dv) FLOP a score in the forward, 2.5 times that in the backward.
double flop(const Job& job);

}  // namespace tandem::tools
