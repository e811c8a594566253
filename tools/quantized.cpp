// See quantized.hpp. Layouts are spelt out here once more, from the public header's words, so that a fault in the
// library's shared code doesn't hide.
#include "tools/quantized.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/dtypes.hpp"
#include "oracle/oracle.hpp"
#include "tools/failure.hpp"

namespace tandem::tools {
namespace {

constexpr int64_t group_keys = 16;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The key, of a group of 16, that lies at a place.
int64_t key_at(int64_t place) { return 2 * (place / 4) + place % 2 + 8 * ((place % 4) / 2); }

/// Sequences of one side of a job: where they begin, the rows that count, the rows that the tensor holds for them.
struct Side {
  bool packed;
  std::vector<int64_t> begin, count, room;
  int64_t heads, dim, total;  // total rows: packed ones together, or those of a batch entry

  int64_t batch() const { return static_cast<int64_t>(begin.size()); }
  /// The number of the first block of so many rows among packed rows, and of blocks in all.
  int64_t first(int64_t b, int64_t rows) const { return packed ? begin[static_cast<size_t>(b)] / rows + b : 0; }
  int64_t blocks(int64_t rows) const { return packed ? total / rows + batch() : ceil_div(total, rows); }
  /// The index of a row-major (batch, row, head) tensor.
  size_t row(int64_t b, int64_t r, int64_t h) const {
    const int64_t row = packed ? begin[static_cast<size_t>(b)] + r : b * total + r;
    return static_cast<size_t>(row * heads + h);
  }
};

Side side_of(const Job& job, bool of_query) {
  Job lengths;  // without the tensors' bytes
  lengths.query.spec = job.query.spec;
  lengths.key.spec = job.key.spec;
  lengths.cu_query = job.cu_query;
  lengths.cu_key = job.cu_key;
  const Sequences room = sequences(lengths);
  lengths.used_query = job.used_query;
  lengths.used_key = job.used_key;
  const Sequences used = sequences(lengths);
  const TensorSpec& spec = of_query ? job.query.spec : job.key.spec;
  const auto size = [&](int from_end) { return spec.size[static_cast<size_t>(spec.rank - from_end)]; };
  if (of_query)
    return {used.packed_query, used.query_begin, used.query_count, room.query_count, size(2), size(1), size(3)};
  return {used.packed_key, used.key_begin, used.key_count, room.key_count, size(2), size(1), size(3)};
}

/// The side of one tensor of a quantise job, in which the others may be absent.
Side side_of_one(const Job& job, Tensor Job::*tensor) {
  Job alone;
  alone.query.spec = alone.key.spec = (job.*tensor).spec;
  alone.cu_query = alone.cu_key = tensor == &Job::query ? job.cu_query : job.cu_key;
  return side_of(alone, true);
}

/// One scaled tensor of a job.
struct Scaled {
  Tensor Job::*tensor;
  Tensor Job::*scale;
  Granularity Quantization::*granularity;
  int Quantization::*rows;
  bool of_query;
};
constexpr Scaled scaled[] = {
    {&Job::query, &Job::query_scale, &Quantization::query, &Quantization::query_rows, true},
    {&Job::key, &Job::key_scale, &Quantization::key, &Quantization::key_rows, false},
    {&Job::value, &Job::value_scale, &Quantization::value, &Quantization::value_rows, false},
};

std::vector<int64_t> scale_shape(const Side& side, Granularity granularity, int rows) {
  if (granularity == Granularity::tensor) return {1};
  if (granularity == Granularity::head) return {side.batch(), side.heads};
  const int64_t blocks = side.blocks(std::max(rows, 1));
  return side.packed ? std::vector<int64_t>{side.heads, blocks}
                     : std::vector<int64_t>{side.batch(), side.heads, blocks};
}

/// Where the scale of a row lies in a scale tensor, in bytes.
size_t scale_offset(const Side& side, const Tensor& scale, Granularity granularity, int rows, int64_t b, int64_t h,
                    int64_t r) {
  const auto& stride = scale.spec.stride;
  int64_t at = 0;
  if (granularity == Granularity::head) at = b * stride[0] + h * stride[1];
  if (granularity == Granularity::block) {
    const int64_t block = side.first(b, rows) + r / rows;
    at = side.packed ? h * stride[0] + block * stride[1] : b * stride[0] + h * stride[1] + block * stride[2];
  }
  return scale.first + static_cast<size_t>(at) * sizeof(float);
}

/// The offset of an element of a (batch, row, head, dim) or packed tensor, or of a packed value.
size_t element_offset(const Side& side, const Tensor& tensor, bool groups, int64_t b, int64_t r, int64_t h, int64_t c) {
  const auto& stride = tensor.spec.stride;
  int64_t at = 0;
  if (groups) {
    int64_t place = 0;
    while (key_at(place) != r % group_keys) ++place;
    const int64_t group = side.first(b, group_keys) + r / group_keys;
    at = side.packed ? h * stride[0] + group * stride[1] + c * stride[2] + place
                     : b * stride[0] + h * stride[1] + group * stride[2] + c * stride[3] + place;
  } else if (side.packed) {
    at = (side.begin[static_cast<size_t>(b)] + r) * stride[0] + h * stride[1] + c;
  } else {
    at = b * stride[0] + r * stride[1] + h * stride[2] + c;
  }
  return tensor.first + static_cast<size_t>(at) * size_of(tensor.spec.dtype);
}

float& float_at(Tensor& tensor, size_t offset) { return *reinterpret_cast<float*>(tensor.bytes.data() + offset); }
float float_at(const Tensor& tensor, size_t offset) {
  return *reinterpret_cast<const float*>(tensor.bytes.data() + offset);
}

std::byte stored(float x, Dtype dtype) {
  if (dtype == Dtype::e4m3) return std::byte{to_e4m3(x).bits};
  return static_cast<std::byte>(static_cast<int8_t>(std::clamp(std::nearbyint(x), -127.0F, 127.0F)));
}

float scale_for(float amax, Dtype dtype, bool power_of_two) {
  if (amax == 0) return 1;
  const float scale = amax / (dtype == Dtype::e4m3 ? 448.0F : 127.0F);
  return power_of_two ? std::exp2(std::ceil(std::log2(scale))) : scale;
}

/// Calls visit(b, h, r) for every row that counts.
template <class Visit>
void for_each_row(const Side& side, const Visit& visit) {
  for (int64_t b = 0; b < side.batch(); ++b) {
    for (int64_t r = 0; r < side.count[static_cast<size_t>(b)]; ++r) {
      for (int64_t h = 0; h < side.heads; ++h) visit(b, h, r);
    }
  }
}

void write_scales(const Side& side, const std::vector<float>& x, int64_t dim, const Scaled& what, Job& job) {
  Tensor& scale = job.*what.scale;
  const Granularity granularity = job.problem.quantization.*what.granularity;
  const int rows = job.problem.quantization.*what.rows;
  const Dtype dtype = (job.*what.tensor).spec.dtype;
  for_each_row(side, [&](int64_t b, int64_t h, int64_t r) {
    float& amax = float_at(scale, scale_offset(side, scale, granularity, rows, b, h, r));
    if (std::isnan(amax)) amax = 0;
    for (int64_t c = 0; c < dim; ++c) {
      amax = std::max(amax, std::abs(x[side.row(b, r, h) * static_cast<size_t>(dim) + static_cast<size_t>(c)]));
    }
  });
  const bool power_of_two = what.tensor == &Job::value && granularity == Granularity::block;
  Tensor done = scale;  // a scale that has been made is told from an amax by being NaN here
  for_each_row(side, [&](int64_t b, int64_t h, int64_t r) {
    const size_t at = scale_offset(side, scale, granularity, rows, b, h, r);
    if (std::isnan(float_at(done, at))) return;
    float_at(scale, at) = scale_for(float_at(done, at), dtype, power_of_two);
    float_at(done, at) = std::numeric_limits<float>::quiet_NaN();
  });
}

/// Takes the mean of each head and channel out of the value's rows.
void take_mean(const Side& side, int64_t dim, std::vector<float>& x, Tensor& mean) {
  const auto& stride = mean.spec.stride;
  for (int64_t b = 0; b < side.batch(); ++b) {
    const int64_t count = side.count[static_cast<size_t>(b)];
    for (int64_t h = 0; h < side.heads; ++h) {
      for (int64_t c = 0; c < dim; ++c) {
        const auto element = [&](int64_t r) -> float& {
          return x[side.row(b, r, h) * static_cast<size_t>(dim) + static_cast<size_t>(c)];
        };
        double sum = 0;
        for (int64_t r = 0; r < count; ++r) sum += element(r);
        const auto value = static_cast<float>(count == 0 ? 0 : sum / static_cast<double>(count));
        for (int64_t r = 0; r < count; ++r) element(r) -= value;
        float_at(mean, mean.first +
                           static_cast<size_t>(b * stride[0] + h * stride[1] + c * stride[2]) * sizeof(float)) = value;
      }
    }
  }
}

/// Places of a packed value that lie beyond their sequence's last row hold 0, by contract.
void clear_tails(const Side& side, int64_t dim, Tensor& value) {
  for (int64_t b = 0; b < side.batch(); ++b) {
    const int64_t room = side.room[static_cast<size_t>(b)];
    for (int64_t r = room; r < ceil_div(room, group_keys) * group_keys; ++r) {
      for (int64_t h = 0; h < side.heads; ++h) {
        for (int64_t c = 0; c < dim; ++c) value.bytes[element_offset(side, value, true, b, r, h, c)] = std::byte{0};
      }
    }
  }
}

int64_t dim_of(const Job& job, const Scaled& what) {
  const TensorSpec& spec = what.tensor == &Job::value ? job.out.spec : (job.*what.tensor).spec;
  return spec.size[static_cast<size_t>(spec.rank - 1)];
}

bool has_groups(const Job& job, const Scaled& what) {
  return what.tensor == &Job::value && job.problem.quantization.value_layout == ValueLayout::packed;
}

void dequantise(const Job& job, const Scaled& what, std::vector<double>& numbers, std::vector<double>* scales) {
  const Side side = side_of(job, what.of_query);
  const Tensor &tensor = job.*what.tensor, &scale = job.*what.scale;
  const Granularity granularity = job.problem.quantization.*what.granularity;
  const int rows = job.problem.quantization.*what.rows;
  const int64_t dim = dim_of(job, what);
  const auto count = static_cast<size_t>((side.packed ? side.total : side.batch() * side.total) * side.heads);
  numbers.assign(count * static_cast<size_t>(dim), std::numeric_limits<double>::quiet_NaN());
  if (scales != nullptr) scales->assign(count, 1);
  for_each_row(side, [&](int64_t b, int64_t h, int64_t r) {
    const double factor = float_at(scale, scale_offset(side, scale, granularity, rows, b, h, r));
    if (scales != nullptr) (*scales)[side.row(b, r, h)] = granularity == Granularity::block ? factor : 1;
    for (int64_t c = 0; c < dim; ++c) {
      const auto bits =
          static_cast<uint8_t>(tensor.bytes[element_offset(side, tensor, has_groups(job, what), b, r, h, c)]);
      const double element = tensor.spec.dtype == Dtype::e4m3 ? oracle::decode_e4m3(bits) : static_cast<int8_t>(bits);
      numbers[side.row(b, r, h) * static_cast<size_t>(dim) + static_cast<size_t>(c)] = element * factor;
    }
  });
}

}  // namespace

std::string describe(const Quantising& how) {
  const auto granularity = [](Granularity g) {
    return g == Granularity::tensor ? "tensor" : (g == Granularity::head ? "head" : "block");
  };
  const Quantization& q = how.quantization;
  return fmt::format("q {} k {} v {} {}{}{} -> {}", granularity(q.query), granularity(q.key), granularity(q.value),
                     q.value_layout == ValueLayout::packed ? "packed" : "rows", q.value_mean ? " mean" : "",
                     how.query_key == Dtype::int8 ? " int8" : "", name(how.out));
}

bool eight_bits(Dtype dtype) { return dtype == Dtype::e4m3 || dtype == Dtype::int8; }

Job quantised_job(const Job& source, const Quantising& how, Layout layout) {
  Job job;
  job.problem = source.problem;
  job.problem.quantization = how.quantization;
  for (const auto tensor : {&Job::lse, &Job::cu_query, &Job::cu_key, &Job::used_query, &Job::used_key, &Job::sinks}) {
    job.*tensor = source.*tensor;
  }
  job.query = poisoned(how.query_key, shape_of(source.query.spec), layout);
  job.key = poisoned(how.query_key, shape_of(source.key.spec), layout);
  job.out = poisoned(how.out, shape_of(source.out.spec), layout);
  if (how.out == Dtype::e4m3) job.out_scale = tensor_of(array_of({how.out_scale}, {1}));
  if (how.quantization.value_layout == ValueLayout::rows) {
    job.value = poisoned(Dtype::e4m3, shape_of(source.value.spec), layout);
    return job;
  }
  const Side side = side_of(source, false);
  const int64_t dim = source.value.spec.size[static_cast<size_t>(source.value.spec.rank - 1)];
  std::vector<int64_t> shape = {side.heads, side.blocks(group_keys), dim, group_keys};
  if (!side.packed) shape.insert(shape.begin(), side.batch());
  job.value = poisoned(Dtype::e4m3, shape);
  return job;
}

void allocate_scales(const Job& source, const Quantization& planned, Job& job, Layout layout) {
  job.problem.quantization = planned;
  for (const Scaled& what : scaled) {
    const Side side = side_of(source, what.of_query);
    job.*what.scale = poisoned(Dtype::fp32, scale_shape(side, planned.*what.granularity, planned.*what.rows), layout);
  }
  if (!planned.value_mean) return;
  const Side side = side_of(source, false);
  const int64_t dim = source.value.spec.size[static_cast<size_t>(source.value.spec.rank - 1)];
  job.value_mean = poisoned(Dtype::fp32, {side.batch(), side.heads, dim});
}

void quantise_on_host(const Job& source, Job& job) {
  const Quantization& quantization = job.problem.quantization;
  if (quantization.hadamard) throw Failure("the tools' own quantiser has no Hadamard transform");
  for (const Scaled& what : scaled) {
    const Side side = side_of(source, what.of_query);
    const int64_t dim = dim_of(job, what);
    std::vector<float> x = floats(array_of(source.*what.tensor), "the source of quantising");
    Tensor& tensor = job.*what.tensor;
    const bool groups = has_groups(job, what);
    if (what.tensor == &Job::value && quantization.value_mean) take_mean(side, dim, x, job.value_mean);
    if (groups) clear_tails(side, dim, tensor);
    write_scales(side, x, dim, what, job);
    for_each_row(side, [&](int64_t b, int64_t h, int64_t r) {
      const Tensor& scale = job.*what.scale;
      const size_t at = scale_offset(side, scale, quantization.*what.granularity, quantization.*what.rows, b, h, r);
      const float factor = float_at(scale, at);
      for (int64_t c = 0; c < dim; ++c) {
        tensor.bytes[element_offset(side, tensor, groups, b, r, h, c)] = stored(
            x[side.row(b, r, h) * static_cast<size_t>(dim) + static_cast<size_t>(c)] / factor, tensor.spec.dtype);
      }
    });
  }
}

Job quantise_job(const Job& source, const Job& job) {
  Job quantise;
  quantise.pass = Pass::quantize;
  quantise.problem.options = job.problem.options;
  quantise.problem.lengths = source.problem.lengths;
  quantise.problem.quantization = job.problem.quantization;
  for (const auto tensor :
       {&Job::query, &Job::key, &Job::value, &Job::cu_query, &Job::cu_key, &Job::used_query, &Job::used_key}) {
    quantise.*tensor = source.*tensor;
  }
  quantise.quantized_query = job.query;
  quantise.quantized_key = job.key;
  quantise.quantized_value = job.value;
  for (const auto tensor : {&Job::query_scale, &Job::key_scale, &Job::value_scale, &Job::value_mean}) {
    quantise.*tensor = job.*tensor;
  }
  return quantise;
}

void allocate_quantised(Job& quantise, Dtype query_key) {
  // The shapes are those that the library fills in; only whoever runs it allocates.
  quantise.problem.quantization.value_mean &= quantise.value.present();
  const Quantization& q = quantise.problem.quantization;
  const struct {
    Tensor Job::*quantised;
    Tensor Job::*source;
    const Scaled& scaled;
  } items[] = {{&Job::quantized_query, &Job::query, scaled[0]},
               {&Job::quantized_key, &Job::key, scaled[1]},
               {&Job::quantized_value, &Job::value, scaled[2]}};
  for (const auto& item : items) {
    if (!(quantise.*item.source).present()) continue;
    const bool of_value = item.source == &Job::value;
    const Side side = side_of_one(quantise, item.source);
    std::vector<int64_t> shape = shape_of((quantise.*item.source).spec);
    if (of_value && q.value_layout == ValueLayout::packed) {
      shape = {side.heads, side.blocks(group_keys), side.dim, group_keys};
      if (!side.packed) shape.insert(shape.begin(), side.batch());
    }
    quantise.*item.quantised = poisoned(of_value ? Dtype::e4m3 : query_key, shape);
    quantise.*item.scaled.scale =
        poisoned(Dtype::fp32, scale_shape(side, q.*item.scaled.granularity, q.*item.scaled.rows));
    if (of_value && q.value_mean) quantise.value_mean = poisoned(Dtype::fp32, {side.batch(), side.heads, side.dim});
  }
}

void take_quantised(const Job& quantise, Job& job) {
  job.query = quantise.quantized_query;
  job.key = quantise.quantized_key;
  job.value = quantise.quantized_value;
  for (const auto tensor : {&Job::query_scale, &Job::key_scale, &Job::value_scale, &Job::value_mean}) {
    job.*tensor = quantise.*tensor;
  }
}

Job quantise(const Job& source, const Quantising& how, Backend backend, Memory& memory) {
  Job job = quantised_job(source, how);
  job.problem.options.backend = backend;
  const auto attend = plan(Pass::forward, problem_of(job, memory.device()));
  require(attend.status(), "planning the 8-bit forward");
  allocate_scales(source, attend->quantization(), job);
  Job quantising = quantise_job(source, job);
  const auto planned = plan(Pass::quantize, problem_of(quantising, memory.device()));
  require(planned.status(), "planning the quantiser");
  Execution execution(quantising, *planned, memory);
  require(execution.run(), "quantising");
  execution.fetch(quantising);
  take_quantised(quantising, job);
  return job;
}

Dequantised dequantised(const Job& job) {
  Dequantised result;
  dequantise(job, scaled[0], result.query, nullptr);
  dequantise(job, scaled[1], result.key, nullptr);
  dequantise(job, scaled[2], result.value, &result.value_scale);
  if (job.out_scale.present()) result.out_scale = float_at(job.out_scale, job.out_scale.first);
  const Array out = array_of(job.out);
  if (out.dtype == Dtype::e4m3) {
    for (const std::byte bits : out.bytes) {
      result.out.push_back(oracle::decode_e4m3(static_cast<uint8_t>(bits)) * result.out_scale);
    }
  }
  return result;
}

}  // namespace tandem::tools
