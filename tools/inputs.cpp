// Loading of inputs, with every contradiction named.
#include "tools/inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "oracle/random.hpp"
#include "tools/failure.hpp"
#include "tools/io/list.hpp"
#include "tools/io/npy.hpp"
#include "tools/io/safetensors.hpp"

namespace tandem::tools {
namespace {

struct Inputs {
  Array query, key, value;
};

std::string prefix_of(const Safetensors& file, const InputOptions& options) {
  const std::string suffix = ".query";
  std::set<std::string> prefixes;
  for (const std::string& name : file.names()) {
    if (name.size() > suffix.size() && name.ends_with(suffix))
      prefixes.insert(name.substr(0, name.size() - suffix.size()));
  }
  if (!options.layer.empty()) return options.layer + ".";
  if (file.has("query")) return "";
  if (prefixes.size() == 1) return *prefixes.begin() + ".";
  if (prefixes.empty()) {
    throw Failure(fmt::format("{}: there is no tensor 'query' or 'PREFIX.query' in it", options.input));
  }
  std::string choices;
  for (const auto& prefix : prefixes) choices += (choices.empty() ? "" : ", ") + prefix;
  throw UsageError(fmt::format("{} holds several layers; choose one with --layer: {}", options.input, choices));
}

Inputs random_inputs(const InputOptions& options) {
  const auto size = parse_integers(options.random, "--random", 4);
  for (const int64_t s : size) {
    if (s < 0) throw UsageError("--random: sizes can't be negative");
  }
  const std::vector<int64_t> keys = {size[0], options.key_length.value_or(size[1]), options.key_heads.value_or(size[2]),
                                     size[3]};
  if (keys[1] < 0 || keys[2] < 0) throw UsageError("--key-heads and --key-length can't be negative");
  const Dtype dtype = options.dtype.value_or(Dtype::bf16);
  return {random_array(size, dtype, 3 * options.seed), random_array(keys, dtype, 3 * options.seed + 1),
          random_array(keys, dtype, 3 * options.seed + 2)};
}

Inputs read_inputs(const InputOptions& options) {
  const bool files = !options.query.empty() || !options.key.empty() || !options.value.empty();
  const int sources = int{files} + int{!options.input.empty()} + int{!options.random.empty()};
  if (sources != 1) {
    throw UsageError(sources == 0 ? "no input: give --query, --key and --value, or --input, or --random"
                                  : "give only one of --query/--key/--value, --input and --random");
  }
  if (!options.layer.empty() && options.input.empty()) throw UsageError("--layer needs --input");
  if ((options.key_heads || options.key_length) && options.random.empty()) {
    throw UsageError("--key-heads and --key-length need --random");
  }
  if (!options.random.empty()) return random_inputs(options);
  if (files) {
    if (options.query.empty() || options.key.empty() || options.value.empty()) {
      throw UsageError("--query, --key and --value are needed together");
    }
    return {read_npy(options.query), read_npy(options.key), read_npy(options.value)};
  }
  const auto file = Safetensors::read(options.input);
  const std::string prefix = prefix_of(file, options);
  return {file.at(prefix + "query"), file.at(prefix + "key"), file.at(prefix + "value")};
}

std::vector<int64_t> lse_shape(const std::vector<int64_t>& query) {
  if (query.size() == 3) return {query[1], query[0]};
  return {query[0], query[2], query[1]};
}

}  // namespace

void normalise(Array& array, const char* what, const char* option, bool packed, std::optional<Dtype> dtype) {
  if (packed && array.shape.size() == 4 && array.shape[0] == 1) array.shape.erase(array.shape.begin());
  const size_t rank = packed ? 3 : 4;
  if (array.shape.size() != rank) {
    throw Failure(fmt::format(
        "{}: the shape {} has {} axes; {}", what, to_string(array.shape), array.shape.size(),
        packed ? fmt::format("with {} it is (total, heads, head_dim)", option)
               : fmt::format("it is (batch, seqlen, heads, head_dim), or (total, heads, head_dim) with {}", option)));
  }
  if (dtype) {
    floats(Array{array.dtype, {0}, {}}, what);  // names the tensor if its type can't be converted
    array = convert(std::move(array), *dtype);
  }
}

Tensor lengths_tensor(const std::string& text, const char* option) {
  if (text.empty()) return {};
  const auto values = parse_lengths(text, option);
  Array array{Dtype::int32, {static_cast<int64_t>(values.size())}, Bytes(values.size() * sizeof(int32_t))};
  std::copy_n(reinterpret_cast<const std::byte*>(values.data()), array.bytes.size(), array.bytes.begin());
  return tensor_of(array);
}

Array random_array(std::vector<int64_t> shape, Dtype dtype, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(count_elements(shape, "random data")));
  for (size_t i = 0; i < values.size(); ++i) values[i] = oracle::normal(seed, i);
  return array_of(values, std::move(shape), dtype);
}

Job load_job(const InputOptions& options) {
  Inputs inputs = read_inputs(options);
  const bool packed_query = !options.cu_query.empty(), packed_key = !options.cu_key.empty();
  normalise(inputs.query, "query", "--cu-seqlens-q", packed_query, options.dtype);
  normalise(inputs.key, "key", "--cu-seqlens-k", packed_key, options.dtype);
  normalise(inputs.value, "value", "--cu-seqlens-k", packed_key, options.dtype);
  Job job;
  job.cu_query = lengths_tensor(options.cu_query, "--cu-seqlens-q");
  job.cu_key = lengths_tensor(options.cu_key, "--cu-seqlens-k");
  job.used_query = lengths_tensor(options.used_query, "--seqused-q");
  job.used_key = lengths_tensor(options.used_key, "--seqused-k");
  std::vector<int64_t> out = inputs.query.shape;
  out.back() = inputs.value.shape.back();
  job.out = poisoned(inputs.query.dtype, out);
  job.lse = poisoned(Dtype::fp32, lse_shape(inputs.query.shape));
  job.query = tensor_of(inputs.query);
  job.key = tensor_of(inputs.key);
  job.value = tensor_of(inputs.value);
  return job;
}

Array read_gradient(const Job& forward, const InputOptions& options) {
  const auto out_shape = shape_of(forward.out.spec);
  const Dtype dtype = forward.query.spec.dtype;
  Array gradient =
      options.grad_out.empty() ? random_array(out_shape, dtype, 3 * options.seed + 100) : read_npy(options.grad_out);
  if (gradient.shape.size() == out_shape.size() + 1 && gradient.shape[0] == 1)
    gradient.shape.erase(gradient.shape.begin());
  if (gradient.shape != out_shape) {
    throw Failure(fmt::format("{}: the shape {} is not that of the output, {}", options.grad_out,
                              to_string(gradient.shape), to_string(out_shape)));
  }
  return convert(std::move(gradient), dtype);
}

Job backward_job(const Job& forward, const Array& grad_out) {
  Job job = forward;
  job.pass = Pass::backward;
  const Dtype dtype = forward.query.spec.dtype;
  job.grad_out = tensor_of(grad_out);
  job.grad_query = poisoned(dtype, shape_of(forward.query.spec));
  job.grad_key = poisoned(dtype, shape_of(forward.key.spec));
  job.grad_value = poisoned(dtype, shape_of(forward.value.spec));
  return job;
}

}  // namespace tandem::tools
