// The tensors that a run works on: from .npy files, from a .safetensors file, or random.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/job.hpp"

namespace tandem::tools {

struct InputOptions {
  std::string query, key, value;                 // .npy
  std::string input, layer;                      // .safetensors, and the prefix of its tensors' names
  std::string random;                            // "batch,seqlen,heads,head_dim"
  std::optional<int64_t> key_heads, key_length;  // random only; otherwise as the query's
  std::string cu_query, cu_key, used_query, used_key;
  std::string grad_out;  // .npy
  std::optional<Dtype> dtype;
  uint64_t seed = 1;
};

/// A forward job with its outputs allocated (and poisoned). UsageError where the options contradict each other, Failure
/// where a file does.
Job load_job(const InputOptions& options);

/// The gradient of a forward job's output, from options.grad_out, random where that is empty. Failure where it doesn't
/// fit.
Array read_gradient(const Job& forward, const InputOptions& options);

/// The backward of a finished forward job.
Job backward_job(const Job& forward, const Array& grad_out);

/// Checks an input's number of axes, drops a batch axis of 1 from a packed one, and converts. Messages say `what` it
/// is, and which option would make it packed.
void normalise(Array& array, const char* what, const char* option, bool packed, std::optional<Dtype> dtype);
/// The lengths of an option, a list or a file; absent where it is empty.
Tensor lengths_tensor(const std::string& text, const char* option);

/// Normally distributed numbers, each a function of seed and index.
Array random_array(std::vector<int64_t> shape, Dtype dtype, uint64_t seed);

}  // namespace tandem::tools
