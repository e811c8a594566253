// tandem quantize: 8-bit tensors and their scales from 16-bit ones.
#include <fmt/format.h>

#include <cstdio>

#include "tools/commands.hpp"
#include "tools/failure.hpp"
#include "tools/inputs.hpp"
#include "tools/io/file.hpp"
#include "tools/io/npy.hpp"
#include "tools/io/safetensors.hpp"
#include "tools/quantized.hpp"

namespace tandem::tools {
namespace {

struct QuantizeOptions {
  std::string query, key, value, cu_query, cu_key, rope_cos, rope_sin, output;
  std::string scales = "block", layout = "packed", dtype = "bf16";
  int rows = 128;
  bool int8 = false, interleaved = false;
  Quantization quantization;
  Backend backend = Backend::automatic;
};

Tensor read_tensor(const std::string& path, const char* what, const char* option, bool packed, Dtype dtype) {
  if (path.empty()) return {};
  Array array = read_npy(path);
  normalise(array, what, option, packed, dtype);
  return tensor_of(array);
}

Tensor read_table(const std::string& path, const char* option) {
  if (path.empty()) return {};
  const Array array = read_npy(path);
  if (array.shape.size() != 2)
    throw Failure(fmt::format("{}: the shape {} isn't (positions, dims / 2)", option, to_string(array.shape)));
  return tensor_of(convert(array, Dtype::fp32));
}

/// The quantise job with its inputs; outputs take the shapes that the library fills in.
Job load(const QuantizeOptions& o) {
  Job job;
  job.pass = Pass::quantize;
  const Dtype dtype = o.dtype == "fp16" ? Dtype::fp16 : Dtype::bf16;
  const char *of_query = "--cu-seqlens-q", *of_key = "--cu-seqlens-k";
  job.query = read_tensor(o.query, "query", of_query, !o.cu_query.empty(), dtype);
  job.key = read_tensor(o.key, "key", of_key, !o.cu_key.empty(), dtype);
  job.value = read_tensor(o.value, "value", of_key, !o.cu_key.empty(), dtype);
  if (!job.query.present() && !job.key.present() && !job.value.present()) {
    throw UsageError("no input: give --query, --key or --value");
  }
  job.cu_query = lengths_tensor(o.cu_query, of_query);
  job.cu_key = lengths_tensor(o.cu_key, of_key);
  job.rope_cos = read_table(o.rope_cos, "--rope-cos");
  job.rope_sin = read_table(o.rope_sin, "--rope-sin");
  if (job.rope_cos.present()) job.problem.rope.dims = static_cast<int>(2 * job.rope_cos.spec.size[1]);
  job.problem.rope.interleaved = o.interleaved;
  job.problem.quantization = o.quantization;
  return job;
}

struct Output {
  const char* name;
  Tensor Job::*source;
  Tensor Job::*written;
};
constexpr Output outputs[] = {
    {"query", &Job::query, &Job::quantized_query}, {"query_scale", &Job::query, &Job::query_scale},
    {"key", &Job::key, &Job::quantized_key},       {"key_scale", &Job::key, &Job::key_scale},
    {"value", &Job::value, &Job::quantized_value}, {"value_scale", &Job::value, &Job::value_scale},
    {"value_mean", &Job::value, &Job::value_mean},
};

void write(const Job& job, const std::string& output) {
  std::map<std::string, Array> arrays;
  for (const Output& o : outputs) {
    const Tensor& tensor = job.*o.written;
    if (!tensor.present()) continue;
    arrays[o.name] = array_of(tensor);
    fmt::print("  {:<12}{} {}\n", o.name, to_string(shape_of(tensor.spec)), name(tensor.spec.dtype));
  }
  if (ends_with(output, ".safetensors")) {
    write_safetensors(output, arrays);
    fmt::print("wrote {}\n", output);
    return;
  }
  for (const auto& [what, array] : arrays) {
    const std::string path = fmt::format("{}{}.npy", output, what);
    write_npy(path, array);
    fmt::print("wrote {}\n", path);
  }
}

void quantize(QuantizeOptions o) {
  const std::map<std::string, Granularity> granularities = {
      {"tensor", Granularity::tensor}, {"head", Granularity::head}, {"block", Granularity::block}};
  Quantization& q = o.quantization;
  q.query = q.key = q.value = granularities.at(o.scales);
  q.query_rows = q.key_rows = q.value_rows = o.rows;
  q.value_layout = o.layout == "rows" ? ValueLayout::rows : ValueLayout::packed;
  require_writable(ends_with(o.output, ".safetensors") ? o.output : o.output + "value.npy");
  if (o.backend == Backend::automatic) o.backend = available(Backend::sm90).ok() ? Backend::sm90 : Backend::cpu;
  require(available(o.backend), fmt::format("the backend {} can't run here", name(o.backend)));
  auto memory = memory_for(o.backend);
  Job job = load(o);
  allocate_quantised(job, o.int8 ? Dtype::int8 : Dtype::e4m3);
  job.problem.options.backend = o.backend;
  const auto planned = plan(Pass::quantize, problem_of(job, memory->device()));
  require(planned.status(), "planning");
  Execution execution(job, *planned, *memory);
  if (o.backend == Backend::sm90) require(execution.run(), "quantising");  // the first launch loads the kernel
  const double seconds = memory->seconds([&] { require(execution.run(), "quantising"); });
  execution.fetch(job);
  fmt::print("quantised on {} ({}) in {:.4g} ms\n", name(o.backend), memory->device_name(), seconds * 1e3);
  write(job, o.output);
}

}  // namespace

void add_quantize(CLI::App& program) {
  auto o = std::make_shared<QuantizeOptions>();
  CLI::App* command = program.add_subcommand("quantize", "Make 8-bit tensors and their scales of 16-bit ones");
  command->add_option("--query", o->query, "Queries (batch, seqlen, heads, head_dim), or packed")->type_name("Q.npy");
  command->add_option("--key", o->key, "Keys")->type_name("K.npy");
  command->add_option("--value", o->value, "Values")->type_name("V.npy");
  command->add_option("--dtype", o->dtype, "What the numbers are rounded to first: bf16 or fp16")
      ->check(CLI::IsMember({"bf16", "fp16"}));
  command->add_option("--cu-seqlens-q", o->cu_query, "Cumulative query lengths")->type_name("LIST");
  command->add_option("--cu-seqlens-k", o->cu_key, "Cumulative key lengths")->type_name("LIST");
  command->add_option("--scales", o->scales, "One scale a tensor, head or block of rows")
      ->check(CLI::IsMember({"tensor", "head", "block"}));
  command->add_option("--rows", o->rows, "Rows of a block, as the forward plan asks ('tandem run --fp8 --explain')")
      ->check(CLI::Range(1, 1 << 20));
  command->add_flag("--int8", o->int8, "Query and key in int8 instead of e4m3");
  command->add_flag("--hadamard", o->quantization.hadamard, "Query and key times random signs and a Hadamard matrix");
  command->add_option("--sign-seed", o->quantization.sign_seed, "Seed of the signs");
  command->add_flag("--value-mean", o->quantization.value_mean, "Take the mean of each head and channel out of value");
  command->add_option("--value-layout", o->layout, "packed or rows")->check(CLI::IsMember({"packed", "rows"}));
  CLI::Option* cos = command->add_option("--rope-cos", o->rope_cos, "Rotate query and key: (positions, dims / 2)");
  CLI::Option* sin = command->add_option("--rope-sin", o->rope_sin, "The table of sines")->needs(cos);
  cos->needs(sin);
  command->add_flag("--rope-interleaved", o->interleaved, "Neighbouring dimensions turn together, not halves");
  add_backend_option(*command, o->backend);
  command
      ->add_option("--output", o->output,
                   "F.safetensors, or the beginning of the .npy files' names (e4m3 is written as uint8 there)")
      ->required()
      ->type_name("PREFIX|F.safetensors");
  command->footer(
      "Examples:\n"
      "  tandem quantize --query Q.npy --key K.npy --value V.npy --hadamard --output quantised.safetensors\n"
      "  tandem quantize --key K.npy --value V.npy --scales head --value-layout rows --output cache_");
  command->callback([o] { quantize(*o); });
}

}  // namespace tandem::tools
