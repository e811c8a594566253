// Timing of the quantiser.
#include "tools/bench/quantiser.hpp"

#include <dlfcn.h>

#include <algorithm>

#include "tools/bench/benchmark.hpp"
#include "tools/failure.hpp"
#include "tools/inputs.hpp"

namespace tandem::tools {
namespace {

constexpr int64_t hidden = 2048;
constexpr int sets = 3;  // of tensors, one after the other, so that no run finds its input in the cache

struct Method {
  const char* tensor;
  const char* name;
  Granularity granularity = Granularity::block;
  int rows = 128;
  bool hadamard = false, mean = false;
  int rope = 0;  // 1: halves, 2: interleaved
  ValueLayout layout = ValueLayout::packed;
  Dtype source = Dtype::bf16, target = Dtype::e4m3;
};

std::vector<Method> methods() {
  const char *query = "query", *value = "value";
  return {{.tensor = query, .name = "blocks of 128"},
          {.tensor = query, .name = "blocks of 64", .rows = 64},
          {.tensor = query, .name = "blocks, hadamard", .hadamard = true},
          {.tensor = query, .name = "blocks of 64, hadamard", .rows = 64, .hadamard = true},
          {.tensor = query, .name = "blocks, rope", .rope = 1},
          {.tensor = query, .name = "blocks, rope, hadamard", .hadamard = true, .rope = 1},
          {.tensor = query, .name = "blocks, rope interleaved, hadamard", .hadamard = true, .rope = 2},
          {.tensor = query, .name = "blocks, hadamard, int8", .hadamard = true, .target = Dtype::int8},
          {.tensor = query, .name = "blocks, hadamard, fp16", .hadamard = true, .source = Dtype::fp16},
          {.tensor = query, .name = "heads, hadamard", .granularity = Granularity::head, .hadamard = true},
          {.tensor = value, .name = "blocks of 128, packed"},
          {.tensor = value, .name = "blocks of 96, packed", .rows = 96},
          {.tensor = value, .name = "blocks, packed, mean", .mean = true},
          {.tensor = value, .name = "blocks, rows", .layout = ValueLayout::rows},
          {.tensor = value, .name = "heads, packed", .granularity = Granularity::head},
          {.tensor = value, .name = "heads, packed, mean", .granularity = Granularity::head, .mean = true}};
}

/// What a method's runs need, of one length and head dim.
class Bench {
 public:
  Bench(Memory& memory, int64_t tokens, int head_dim)
      : memory_(memory), batch_(tokens / length), heads_(hidden / head_dim), head_dim_(head_dim) {
    const auto elements = static_cast<size_t>(tokens * hidden);
    for (int i = 0; i < sets; ++i) {
      sources_.emplace_back(memory, 2 * elements);
      fill(sources_.back());
      targets_.emplace_back(memory, elements);
    }
    scales_ = Buffer(memory, elements / 16);
    means_ = Buffer(memory, static_cast<size_t>(batch_ * hidden) * sizeof(float));
    table_ = Buffer(memory, static_cast<size_t>(length * head_dim) * 2);
    fill(table_);
  }

  QuantiserRow measure(const Method& m, int samples) {
    Arguments arguments;
    const Problem problem = problem_of(m, arguments);
    const auto plan = tandem::plan(Pass::quantize, problem);
    if (!plan) throw Failure(plan.status().message);
    const Buffer workspace(memory_, plan->workspace_bytes());
    int set = 0;
    const Timing timing = tandem::tools::measure(memory_, samples, [&] {
      TensorView& source = is_value(m) ? arguments.value : arguments.query;
      TensorView& target = is_value(m) ? arguments.quantized_value : arguments.quantized_query;
      source.data = sources_[static_cast<size_t>(set)].data();
      target.data = targets_[static_cast<size_t>(set)].data();
      set = (set + 1) % sets;
      const Status status = plan->run(arguments, workspace.data(), workspace.bytes(), memory_.stream());
      if (!status.ok()) throw Failure(status.message);
    });
    QuantiserRow row;
    row.tensor = m.tensor;
    row.method = m.name;
    row.head_dim = head_dim_;
    row.tokens = batch_ * length;
    row.seconds = timing.median;
    row.spread = timing.spread;
    const double elements = static_cast<double>(row.tokens * hidden);
    const double reads = m.mean || m.granularity != Granularity::block ? 2 : 1;
    const double scales = m.granularity == Granularity::block ? elements / head_dim_ / m.rows : 0;
    row.bytes = elements * (2 * reads + 1) + 4 * scales;
    row.bandwidth = row.bytes / row.seconds;
    return row;
  }

  /// The bandwidth of the driver's own copy, of as many bytes as a row of block scales moves.
  double copy(int samples) {
    using Copy = int (*)(uint64_t, uint64_t, size_t, void*);
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto copy = reinterpret_cast<Copy>(library != nullptr ? dlsym(library, "cuMemcpyDtoDAsync_v2") : nullptr);
    if (copy == nullptr) throw Failure("the driver has no cuMemcpyDtoDAsync_v2");
    const size_t bytes = targets_[0].bytes() / 2 * 3;
    int set = 0;
    const Timing timing = tandem::tools::measure(memory_, samples, [&] {
      const auto from = reinterpret_cast<uint64_t>(sources_[static_cast<size_t>(set)].data());
      set = (set + 1) % sets;
      const auto to = reinterpret_cast<uint64_t>(sources_[static_cast<size_t>(set)].data());
      if (copy(to, from, bytes, memory_.stream()) != 0) throw Failure("the device's copy failed");
    });
    return 2 * static_cast<double>(bytes) / timing.median;
  }

 private:
  static constexpr int64_t length = 8192;

  static bool is_value(const Method& m) { return m.tensor[0] == 'v'; }

  void fill(const Buffer& buffer) {
    const Array block = random_array({(1 << 20) + 24}, Dtype::bf16, 7);
    for (size_t at = 0; at < buffer.bytes(); at += block.bytes.size())
      memory_.upload(buffer.data() + at, block.bytes.data(), std::min(block.bytes.size(), buffer.bytes() - at));
  }

  Problem problem_of(const Method& m, Arguments& a) const {
    const Device device = memory_.device();
    const TensorSpec rows = contiguous(m.source, device, {batch_, length, heads_, head_dim_});
    TensorSpec target = contiguous(m.target, device, {batch_, length, heads_, head_dim_});
    TensorSpec scale = contiguous(Dtype::fp32, device, {batch_, heads_, (length + m.rows - 1) / m.rows});
    if (m.granularity == Granularity::head) scale = contiguous(Dtype::fp32, device, {batch_, heads_});
    Problem p;
    Quantization& q = p.quantization;
    q.query = q.value = m.granularity;
    q.query_rows = q.value_rows = m.rows;
    q.hadamard = m.hadamard;
    q.value_layout = m.layout;
    if (is_value(m)) {
      if (m.layout == ValueLayout::packed)
        target = contiguous(Dtype::e4m3, device, {batch_, heads_, length / 16, head_dim_, 16});
      p.value = a.value.spec = rows;
      p.quantized_value = a.quantized_value.spec = target;
      p.value_scale = scale;
      a.value_scale = {scale, scales_.data()};
      q.value_mean = m.mean;
      if (m.mean) a.value_mean = {contiguous(Dtype::fp32, device, {batch_, heads_, head_dim_}), means_.data()};
      p.value_mean = a.value_mean.spec;
    } else {
      p.query = a.query.spec = rows;
      p.quantized_query = a.quantized_query.spec = target;
      p.query_scale = scale;
      a.query_scale = {scale, scales_.data()};
    }
    if (m.rope != 0) {
      p.rope = {head_dim_, m.rope == 2, false};
      p.rope_cos = p.rope_sin = contiguous(Dtype::fp32, device, {length, head_dim_ / 2});
      a.rope_cos = a.rope_sin = {p.rope_cos, table_.data()};
    }
    return p;
  }

  Memory& memory_;
  const int64_t batch_, heads_;
  const int head_dim_;
  std::vector<Buffer> sources_, targets_;
  Buffer scales_, means_, table_;
};

}  // namespace

QuantiserReport measure_quantiser(Memory& memory, int samples) {
  QuantiserReport report;
  for (const int64_t tokens : {16384, 65536}) {
    for (const int head_dim : {128, 64, 256}) {
      Bench bench(memory, tokens, head_dim);
      const double copy = bench.copy(samples);
      report.copy_bandwidth = std::max(report.copy_bandwidth, copy);
      for (const Method& method : methods()) {
        report.rows.push_back(bench.measure(method, samples));
        report.rows.back().of_copy = report.rows.back().bandwidth / copy;
      }
    }
  }
  return report;
}

}  // namespace tandem::tools
