// Cases of the quantiser's tests: their tensors and runs.
#include "quantize/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "common/dtypes.hpp"
#include "oracle/random.hpp"

namespace quantize_support {
namespace {

using tandem::Dtype;
using tandem::Granularity;

size_t element_bytes(Dtype dtype) {
  return dtype == Dtype::fp32 ? 4 : dtype == Dtype::bf16 || dtype == Dtype::fp16 ? 2 : 1;
}

/// The last `kept` dimensions stay contiguous.
Blob blob(Dtype dtype, const std::vector<int64_t>& size, Layout layout, int kept, uint8_t fill) {
  Blob b;
  b.spec.dtype = dtype;
  b.spec.rank = static_cast<int>(size.size());
  const int rank = b.spec.rank;
  std::vector<int> order;  // from the fastest to the slowest dimension
  for (int n = rank - 1; n >= 0; --n) order.push_back(n);
  if (layout == Layout::head_major && rank >= 3 && kept == 1) std::swap(order[1], order[2]);
  int64_t step = 1;
  for (int n = 0; n < rank; ++n) {
    const auto dim = static_cast<size_t>(order[static_cast<size_t>(n)]);
    b.spec.size[dim] = size[dim];
    b.spec.stride[dim] = step;
    step *= std::max<int64_t>(size[dim], 1);
    if (layout == Layout::gaps && n + 1 >= kept) step += 3;
  }
  if (layout == Layout::gaps) b.spec.alignment = static_cast<int>(element_bytes(dtype));
  b.bytes.assign(2 * Blob::front + static_cast<size_t>(step) * element_bytes(dtype), fill);
  return b;
}

std::vector<int64_t> rows_size(const Side& s, int64_t heads, int64_t columns) {
  if (!s.packed()) return {s.batch, s.longest, heads, columns};
  return {s.total, heads, columns};
}

std::vector<int64_t> scale_size(const Side& s, int64_t heads, Granularity granularity, int64_t rows) {
  if (granularity == Granularity::tensor) return {1};
  if (granularity == Granularity::head) return {s.batch, heads};
  if (!s.packed()) return {s.batch, heads, (s.longest + rows - 1) / rows};
  return {heads, s.total / rows + s.batch};
}

float special(const Case& c, int64_t row, int64_t column, float x) {
  const bool one = row % 7 == 3 && column == 5;
  switch (c.special) {
    case Special::zeros:
      return 0;
    case Special::tiny:
      return x * (c.dtype == Dtype::bf16 ? 1e-38F : 1e-7F);
    case Special::infinite:
      return one ? -std::numeric_limits<float>::infinity() : x;
    case Special::nan:
      return one ? std::numeric_limits<float>::quiet_NaN() : x;
    case Special::huge:
      return x * (c.dtype == Dtype::bf16 ? 1e37F : 1e4F);
    default:
      return x;
  }
}

void fill(Blob& b, const Case& c, const Side& s, int64_t heads, int64_t columns, uint64_t seed, float offset) {
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t r = 0; r < s.count(n); ++r) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < columns; ++i) {
          const auto index = static_cast<uint64_t>(((n * 65536 + r) * heads + h) * columns + i);
          float x = oracle::normal(seed, index) + offset;
          if (oracle::hash(seed + 77, index) % 1000 == 0) x += 10 * oracle::normal(seed + 1, index);
          x = special(c, r, i, x * static_cast<float>(1 + h));
          uint16_t& to = !s.packed() ? b.at<uint16_t>({n, r, h, i}) : b.at<uint16_t>({s.first(n) + r, h, i});
          to = c.dtype == Dtype::bf16 ? tandem::to_bf16(x).bits : tandem::to_fp16(x).bits;
        }
      }
    }
  }
}

Operand operand(const Case& c, bool of_query, bool is_value) {
  const tandem::Quantization& q = c.quantization;
  const Side s = side(c, of_query);
  const int64_t heads = of_query ? c.query_heads : c.key_heads, columns = is_value ? c.value_dim : c.head_dim;
  const Granularity granularity = is_value ? q.value : of_query ? q.query : q.key;
  const int64_t rows = is_value ? q.value_rows : of_query ? q.query_rows : q.key_rows;
  Operand o;
  o.source = blob(c.dtype, rows_size(s, heads, columns), c.layout, 1, 0xff);
  fill(o.source, c, s, heads, columns, 3 * c.seed + (is_value ? 2 : of_query ? 0 : 1), is_value ? c.value_offset : 0);
  if (is_value && q.value_layout == tandem::ValueLayout::packed) {
    std::vector<int64_t> size{s.batch, heads, (s.longest + 15) / 16, columns, 16};
    if (s.packed()) size = {heads, s.total / 16 + s.batch, columns, 16};
    o.target = blob(Dtype::e4m3, size, c.target_layout == Layout::head_major ? Layout::contiguous : c.target_layout, 2,
                    Blob::guard);
  } else {
    o.target = blob(c.int8 && !is_value ? Dtype::int8 : Dtype::e4m3, rows_size(s, heads, columns), c.target_layout, 1,
                    Blob::guard);
  }
  o.scale = blob(Dtype::fp32, scale_size(s, heads, granularity, rows), Layout::contiguous, 1, Blob::guard);
  if (q.amax && granularity != Granularity::block) {
    o.amax = blob(Dtype::fp32, scale_size(s, heads, granularity, rows), Layout::contiguous, 1, Blob::guard);
    auto* amax = reinterpret_cast<float*>(o.amax.bytes.data() + Blob::front);
    for (size_t n = 0; n < (o.amax.bytes.size() - 2 * Blob::front) / 4; ++n)
      amax[n] = 1.5F + 0.25F * static_cast<float>(n);
  }
  return o;
}

/// A blob in a backend's memory.
class Placed {
 public:
  Placed(tandem::tools::Memory& memory, Blob& blob) : memory_(memory), blob_(blob), buffer_(memory, blob.bytes.size()) {
    memory.upload(buffer_.data(), blob.bytes.data(), blob.bytes.size());
  }
  void fetch() { memory_.download(blob_.bytes.data(), buffer_.data(), blob_.bytes.size()); }
  void* data() const { return buffer_.data() + Blob::front; }

 private:
  tandem::tools::Memory& memory_;
  Blob& blob_;
  tandem::tools::Buffer buffer_;
};

/// The arguments of a run in a backend's memory.
class Run {
 public:
  Run(Job& job, tandem::tools::Memory& memory) : memory_(memory) {
    const auto take = [&](Operand& o, tandem::TensorView& source, tandem::TensorView& target, tandem::TensorView& scale,
                          tandem::TensorView& amax) {
      view(o.source, source);
      view(o.target, target);
      view(o.scale, scale);
      view(o.amax, amax);
    };
    tandem::Arguments& a = arguments;
    take(job.query, a.query, a.quantized_query, a.query_scale, a.query_amax);
    take(job.key, a.key, a.quantized_key, a.key_scale, a.key_amax);
    take(job.value, a.value, a.quantized_value, a.value_scale, a.value_amax);
    view(job.value_mean, a.value_mean);
    view(job.rope_cos, a.rope_cos);
    view(job.rope_sin, a.rope_sin);
    numbers(job.position, a.position);
    numbers(job.c.cu_query, a.cu_query);
    numbers(job.c.cu_key, a.cu_key);
    numbers(job.c.used_query, a.used_query);
    numbers(job.c.used_key, a.used_key);
  }
  void fetch() {
    for (Placed& placed : blobs_) placed.fetch();
  }
  tandem::Arguments arguments;

 private:
  void view(Blob& b, tandem::TensorView& to) {
    if (!b.present()) return;
    blobs_.reserve(32);
    blobs_.emplace_back(memory_, b);
    to = {b.spec, blobs_.back().data()};
    to.spec.device = memory_.device();
  }
  void numbers(const std::vector<int32_t>& list, tandem::TensorView& to) {
    if (list.empty()) return;
    const size_t bytes = list.size() * sizeof(int32_t);
    buffers_.emplace_back(memory_, bytes);
    memory_.upload(buffers_.back().data(), list.data(), bytes);
    to = {tandem::contiguous(Dtype::int32, memory_.device(), {static_cast<int64_t>(list.size())}),
          buffers_.back().data()};
  }

  tandem::tools::Memory& memory_;
  std::vector<Placed> blobs_;
  std::vector<tandem::tools::Buffer> buffers_;
};

std::string text_of(const tandem::Status& status) { return std::string(status.argument) + ": " + status.message; }

}  // namespace

Side side(const Case& c, bool of_query) {
  const std::vector<int32_t>& cumulative = of_query ? c.cu_query : c.cu_key;
  const int64_t longest = of_query ? c.queries : c.keys;
  return {c.batch, longest, cumulative.empty() ? c.batch * longest : cumulative.back(), cumulative,
          of_query ? c.used_query : c.used_key};
}

int64_t Blob::offset(std::initializer_list<int64_t> index) const {
  int64_t at = 0;
  size_t n = 0;
  for (const int64_t i : index) at += i * spec.stride[n++];
  return at;
}

Job make_job(const Case& c) {
  Job job;
  job.c = c;
  if (c.query) job.query = operand(c, true, false);
  if (c.key) job.key = operand(c, false, false);
  if (c.value) job.value = operand(c, false, true);
  if (c.quantization.value_mean && c.value)
    job.value_mean = blob(Dtype::fp32, {c.batch, c.key_heads, c.value_dim}, Layout::contiguous, 1, Blob::guard);
  if (c.quantization.known_mean) {
    auto* mean = reinterpret_cast<float*>(job.value_mean.bytes.data() + Blob::front);
    for (int64_t n = 0; n < c.batch * c.key_heads * c.value_dim; ++n) mean[n] = known_mean(n);
  }
  if (c.rope.dims == 0) return job;
  const int64_t half = c.rope.dims / 2, positions = std::max(c.queries, c.keys) + 40;
  job.rope_cos = blob(Dtype::fp32, {positions, half}, Layout::contiguous, 1, Blob::guard);
  job.rope_sin = job.rope_cos;
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
      job.rope_cos.at<float>({p, i}) = static_cast<float>(std::cos(angle));
      job.rope_sin.at<float>({p, i}) = static_cast<float>(std::sin(angle));
    }
  }
  if (c.rope.positions)
    for (int64_t b = 0; b < c.batch; ++b) job.position.push_back(static_cast<int32_t>(5 + 11 * b));
  return job;
}

tandem::Problem problem_of(const Job& job, tandem::Device device) {
  const Case& c = job.c;
  tandem::Problem p;
  p.query = job.query.source.spec;
  p.key = job.key.source.spec;
  p.value = job.value.source.spec;
  p.quantized_query = job.query.target.spec;
  p.quantized_key = job.key.target.spec;
  p.quantized_value = job.value.target.spec;
  p.query_scale = job.query.scale.spec;
  p.key_scale = job.key.scale.spec;
  p.value_scale = job.value.scale.spec;
  p.value_mean = job.value_mean.spec;
  p.rope_cos = job.rope_cos.spec;
  p.rope_sin = job.rope_sin.spec;
  for (tandem::TensorSpec* spec :
       {&p.query, &p.key, &p.value, &p.quantized_query, &p.quantized_key, &p.quantized_value, &p.query_scale,
        &p.key_scale, &p.value_scale, &p.value_mean, &p.rope_cos, &p.rope_sin})
    if (spec->present()) spec->device = device;
  p.quantization = c.quantization;
  p.rope = c.rope;
  p.lengths.packed_query = !c.cu_query.empty();
  p.lengths.packed_key = !c.cu_key.empty();
  p.lengths.used_query = !c.used_query.empty();
  p.lengths.used_key = !c.used_key.empty();
  if (p.lengths.packed_query || p.lengths.packed_key) {
    p.lengths.batch = c.batch;
    if (p.lengths.packed_query) p.lengths.max_query = c.queries;
    if (p.lengths.packed_key) p.lengths.max_key = c.keys;
  }
  p.options.threads = 2;
  return p;
}

std::string run(Job& job, tandem::Backend backend, tandem::tools::Memory& memory, uint64_t emulator_seed) {
  tandem::Problem problem = problem_of(job, memory.device());
  problem.options.backend = backend;
  problem.options.emulator_seed = emulator_seed;
  const tandem::Result<tandem::Plan> plan = tandem::plan(tandem::Pass::quantize, problem);
  if (!plan) return "plan: " + text_of(plan.status());
  Run run(job, memory);
  const std::vector<uint8_t> nan(plan->workspace_bytes(), 0xff);
  const tandem::tools::Buffer workspace(memory, nan.size());
  memory.upload(workspace.data(), nan.data(), nan.size());
  const tandem::Status status = plan->run(run.arguments, workspace.data(), nan.size(), memory.stream());
  if (!status.ok()) return "run: " + text_of(status);
  memory.synchronize();
  run.fetch();
  return {};
}

std::string compare(const Job& a, const Job& b) {
  std::string text;
  const auto check = [&](const char* name, const Blob& x, const Blob& y) {
    size_t differ = 0, first = 0;
    for (size_t i = x.bytes.size(); i-- > 0;)
      if (x.bytes[i] != y.bytes[i]) ++differ, first = i;
    if (differ == 0) return;
    text += std::string(name) + ": " + std::to_string(differ) + " bytes differ, the first is number " +
            std::to_string(static_cast<int64_t>(first) - static_cast<int64_t>(Blob::front)) + " (" +
            std::to_string(x.bytes[first]) + " and " + std::to_string(y.bytes[first]) + "); ";
  };
  check("quantized_query", a.query.target, b.query.target);
  check("quantized_key", a.key.target, b.key.target);
  check("quantized_value", a.value.target, b.value.target);
  check("query_scale", a.query.scale, b.query.scale);
  check("key_scale", a.key.scale, b.key.scale);
  check("value_scale", a.value.scale, b.value.scale);
  check("value_mean", a.value_mean, b.value_mean);
  return text;
}

}  // namespace quantize_support
