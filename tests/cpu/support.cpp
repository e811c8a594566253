// Tensors with guards, cases, their runs and judgement.
#include "cpu/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/dtypes.hpp"
#include "oracle/random.hpp"

namespace testing_support {
namespace {

constexpr uint8_t guard = 0xa5;
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<int64_t> layout_strides(const std::vector<int64_t>& size, Layout layout) {
  const size_t rank = size.size();
  std::vector<size_t> order(rank);  // from the slowest to the fastest dimension
  for (size_t n = 0; n < rank; ++n) order[n] = n;
  if (layout == Layout::head_major && rank >= 3) std::swap(order[rank - 3], order[rank - 2]);
  std::vector<int64_t> stride(rank);
  int64_t step = 1;
  for (size_t n = rank; n-- > 0;) {
    stride[order[n]] = step;
    step *= std::max<int64_t>(size[order[n]], 1);
    if (layout == Layout::gaps) step += 3;
  }
  return stride;
}

oracle::Type type_of(tandem::Dtype dtype) {
  switch (dtype) {
    case tandem::Dtype::fp16:
      return oracle::Type::fp16;
    case tandem::Dtype::bf16:
      return oracle::Type::bf16;
    default:
      return oracle::Type::fp32;
  }
}

}  // namespace

Tensor::Tensor(tandem::Dtype dtype, const std::vector<int64_t>& size, Layout layout)
    : Tensor(dtype, size, layout_strides(size, layout)) {}

Tensor::Tensor(tandem::Dtype dtype, const std::vector<int64_t>& size, const std::vector<int64_t>& stride) {
  spec_.dtype = dtype;
  spec_.rank = static_cast<int>(size.size());
  int64_t last = 0;
  for (size_t n = 0; n < size.size(); ++n) {
    spec_.size[n] = size[n];
    spec_.stride[n] = stride[n];
    last += std::max<int64_t>(size[n] - 1, 0) * stride[n];
  }
  bytes_.assign(2 * front + static_cast<size_t>(last + 1) * element_bytes(), guard);
  fill(not_a_number);
}

size_t Tensor::element_bytes() const { return spec_.dtype == tandem::Dtype::fp32 ? 4 : 2; }

template <class Visit>
void Tensor::for_each(const Visit& visit) const {
  std::vector<int64_t> index(static_cast<size_t>(spec_.rank));
  for (int n = 0; n < spec_.rank; ++n) {
    if (spec_.size[n] == 0) return;
  }
  while (true) {
    visit(index);
    int n = spec_.rank - 1;
    while (n >= 0 && ++index[static_cast<size_t>(n)] == spec_.size[n]) index[static_cast<size_t>(n--)] = 0;
    if (n < 0) return;
  }
}

int64_t Tensor::offset(const std::vector<int64_t>& index) const {
  int64_t at = 0;
  for (size_t n = 0; n < index.size(); ++n) at += index[n] * spec_.stride[n];
  return at;
}

void Tensor::set(const std::vector<int64_t>& index, float value) {
  uint8_t* at = bytes_.data() + front + static_cast<size_t>(offset(index)) * element_bytes();
  if (spec_.dtype == tandem::Dtype::fp32) {
    std::memcpy(at, &value, 4);
  } else {
    const uint16_t bits =
        spec_.dtype == tandem::Dtype::bf16 ? tandem::to_bf16(value).bits : tandem::to_fp16(value).bits;
    std::memcpy(at, &bits, 2);
  }
}

double Tensor::get(const std::vector<int64_t>& index) const {
  const oracle::Tensor flat{data(), type_of(spec_.dtype), {0, 0, 0, 1}};
  return flat.at(0, 0, 0, offset(index));
}

void Tensor::fill_normal(int64_t batch, int64_t first, int64_t last, uint64_t seed, float deviation) {
  const bool packed = spec_.rank == 3;
  const int64_t heads = spec_.size[packed ? 1 : 2], columns = spec_.size[packed ? 2 : 3];
  for (int64_t i = first; i < last; ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t c = 0; c < columns; ++c) {
        const auto n = static_cast<uint64_t>(((batch * 65536 + i) * heads + h) * columns + c);
        const float x = oracle::normal(seed, n) * deviation;
        set(packed ? std::vector<int64_t>{i, h, c} : std::vector<int64_t>{batch, i, h, c}, x);
      }
    }
  }
}

void Tensor::fill(float value) {
  for_each([&](const std::vector<int64_t>& index) { set(index, value); });
}

std::vector<uint8_t> Tensor::content() const {
  std::vector<uint8_t> bytes;
  for_each([&](const std::vector<int64_t>& index) {
    const uint8_t* at = data() + static_cast<size_t>(offset(index)) * element_bytes();
    bytes.insert(bytes.end(), at, at + element_bytes());
  });
  return bytes;
}

bool Tensor::guards_intact() const {
  std::vector<bool> element(bytes_.size(), false);
  for_each([&](const std::vector<int64_t>& index) {
    const size_t at = front + static_cast<size_t>(offset(index)) * element_bytes();
    for (size_t n = 0; n < element_bytes(); ++n) element[at + n] = true;
  });
  for (size_t n = 0; n < bytes_.size(); ++n) {
    if (!element[n] && bytes_[n] != guard) return false;
  }
  return true;
}

oracle::Tensor Tensor::oracle() const {
  const auto& s = spec_.stride;
  if (spec_.rank == 3) return {data(), type_of(spec_.dtype), {0, s[0], s[1], s[2]}};
  return {data(), type_of(spec_.dtype), {s[0], s[1], s[2], s[3]}};
}

oracle::Tensor Tensor::oracle_lse() const {
  const auto& s = spec_.stride;
  if (spec_.rank == 2) return {data(), oracle::Type::fp32, {0, s[1], s[0], 0}};
  return {data(), oracle::Type::fp32, {s[0], s[2], s[1], 0}};
}

std::string Config::text() const {
  std::string s = std::string(tandem::name(dtype)) + " b" + std::to_string(batch) + " sq" + std::to_string(queries) +
                  " sk" + std::to_string(keys) + " h" + std::to_string(query_heads) + "/" + std::to_string(key_heads) +
                  " d" + std::to_string(head_dim) + "/" + std::to_string(value_dim) + " seed " + std::to_string(seed);
  if (mask.causal) s += " causal";
  if (mask.left >= 0 || mask.right >= 0) s += " window " + std::to_string(mask.left) + "," + std::to_string(mask.right);
  if (mask.diagonal) s += " diagonal " + std::to_string(*mask.diagonal);
  if (scale) s += " scale " + std::to_string(*scale);
  if (softcap > 0) s += " softcap " + std::to_string(softcap);
  if (sinks) s += " sinks";
  if (!cu_query.empty()) s += " packed";
  if (!used_query.empty() || !used_key.empty()) s += " used";
  return s;
}

Config shape(tandem::Dtype dtype, int64_t batch, int64_t queries, int64_t keys, int64_t query_heads, int64_t key_heads,
             int64_t dim, bool causal) {
  Config c;
  c.dtype = dtype;
  c.batch = batch;
  c.queries = queries;
  c.keys = keys;
  c.query_heads = query_heads;
  c.key_heads = key_heads;
  c.head_dim = c.value_dim = dim;
  c.mask.causal = causal;
  return c;
}

Config packed(tandem::Dtype dtype, std::vector<int32_t> cu_query, std::vector<int32_t> cu_key, int64_t query_heads,
              int64_t key_heads, int64_t dim, bool causal) {
  Config c = shape(dtype, static_cast<int64_t>(cu_query.size()) - 1, 0, 0, query_heads, key_heads, dim, causal);
  c.cu_query = std::move(cu_query);
  c.cu_key = std::move(cu_key);
  return c;
}

Case::Case(const Config& c) : config(c) {
  const bool packed_query = !c.cu_query.empty(), packed_key = !c.cu_key.empty();
  const int64_t total_query = c.total_query >= 0 ? c.total_query : (packed_query ? c.cu_query.back() : 0);
  const int64_t total_key = c.total_key >= 0 ? c.total_key : (packed_key ? c.cu_key.back() : 0);
  const auto shape = [&](bool packed, int64_t total, int64_t rows, int64_t heads, int64_t columns) {
    return packed ? std::vector<int64_t>{total, heads, columns} : std::vector<int64_t>{c.batch, rows, heads, columns};
  };
  query = Tensor(c.dtype, shape(packed_query, total_query, c.queries, c.query_heads, c.head_dim), c.layout);
  key = Tensor(c.dtype, shape(packed_key, total_key, c.keys, c.key_heads, c.head_dim), c.layout);
  value = Tensor(c.dtype, shape(packed_key, total_key, c.keys, c.key_heads, c.value_dim), c.layout);
  out = Tensor(c.dtype, shape(packed_query, total_query, c.queries, c.query_heads, c.value_dim), c.out_layout);
  lse = Tensor(tandem::Dtype::fp32,
               packed_query ? std::vector<int64_t>{c.query_heads, total_query}
                            : std::vector<int64_t>{c.batch, c.query_heads, c.queries},
               c.out_layout);
  grad_out = Tensor(c.dtype, shape(packed_query, total_query, c.queries, c.query_heads, c.value_dim), c.layout);
  grad_query = Tensor(c.dtype, shape(packed_query, total_query, c.queries, c.query_heads, c.head_dim), c.out_layout);
  grad_key = Tensor(c.dtype, shape(packed_key, total_key, c.keys, c.key_heads, c.head_dim), c.out_layout);
  grad_value = Tensor(c.dtype, shape(packed_key, total_key, c.keys, c.key_heads, c.value_dim), c.out_layout);
  const oracle::Problem p = oracle_problem();
  for (size_t b = 0; b < p.sequences.size(); ++b) {
    const oracle::Sequence& s = p.sequences[b];
    const auto batch = static_cast<int64_t>(b);
    query.fill_normal(batch, s.first_query, s.first_query + s.queries, 3 * c.seed, c.deviation);
    grad_out.fill_normal(batch, s.first_query, s.first_query + s.queries, 3 * c.seed + 1000003);
    key.fill_normal(batch, s.first_key, s.first_key + s.keys, 3 * c.seed + 1, c.deviation);
    value.fill_normal(batch, s.first_key, s.first_key + s.keys, 3 * c.seed + 2, c.deviation);
  }
  for (int64_t h = 0; h < c.query_heads; ++h) sinks.push_back(oracle::normal(c.seed + 77, static_cast<uint64_t>(h)));
}

tandem::Problem Case::problem() const {
  tandem::Problem p;
  p.query = query.spec();
  p.key = key.spec();
  p.value = value.spec();
  p.out = out.spec();
  p.lse = lse.spec();
  p.scale = config.scale;
  p.softcap = config.softcap;
  p.mask = config.mask;
  p.sinks = config.sinks;
  p.lengths.packed_query = !config.cu_query.empty();
  p.lengths.packed_key = !config.cu_key.empty();
  p.lengths.used_query = !config.used_query.empty();
  p.lengths.used_key = !config.used_key.empty();
  if (p.lengths.packed_query || p.lengths.packed_key) p.lengths.batch = config.batch;
  p.options.backend = tandem::Backend::cpu;
  p.options.threads = config.threads;
  return p;
}

namespace {

tandem::TensorView lengths_view(const std::vector<int32_t>& values) {
  if (values.empty()) return {};
  return {tandem::contiguous(tandem::Dtype::int32, tandem::cpu(), {static_cast<int64_t>(values.size())}),
          const_cast<int32_t*>(values.data())};
}

}  // namespace

tandem::Arguments Case::arguments() const {
  tandem::Arguments a;
  a.query = query.view();
  a.key = key.view();
  a.value = value.view();
  a.out = out.view();
  a.lse = lse.view();
  a.cu_query = lengths_view(config.cu_query);
  a.cu_key = lengths_view(config.cu_key);
  a.used_query = lengths_view(config.used_query);
  a.used_key = lengths_view(config.used_key);
  if (config.sinks) {
    a.sinks = {tandem::contiguous(tandem::Dtype::fp32, tandem::cpu(), {config.query_heads}),
               const_cast<float*>(sinks.data())};
  }
  return a;
}

oracle::Problem Case::oracle_problem() const {
  oracle::Problem p;
  for (int64_t b = 0; b < config.batch; ++b) {
    const auto at = static_cast<size_t>(b);
    oracle::Sequence s{0, config.queries, 0, config.keys};
    if (!config.cu_query.empty()) {
      s.first_query = config.cu_query[at];
      s.queries = config.cu_query[at + 1] - config.cu_query[at];
    }
    if (!config.cu_key.empty()) {
      s.first_key = config.cu_key[at];
      s.keys = config.cu_key[at + 1] - config.cu_key[at];
    }
    if (!config.used_query.empty()) s.queries = config.used_query[at];
    if (!config.used_key.empty()) s.keys = config.used_key[at];
    p.sequences.push_back(s);
  }
  p.query_heads = config.query_heads;
  p.key_heads = config.key_heads;
  p.head_dim = config.head_dim;
  p.value_dim = config.value_dim;
  p.query = query.oracle();
  p.key = key.oracle();
  p.value = value.oracle();
  p.scale = config.scale ? *config.scale : 1 / std::sqrt(static_cast<double>(config.head_dim));
  p.softcap = config.softcap;
  p.causal = config.mask.causal;
  p.left = config.mask.left;
  p.right = config.mask.right;
  p.diagonal = config.mask.diagonal;
  if (config.sinks) p.sinks = sinks.data();
  return p;
}

tandem::Status run(tandem::Pass pass, const tandem::Problem& problem, const tandem::Arguments& arguments) {
  const auto plan = tandem::plan(pass, problem);
  if (!plan.ok()) return plan.status();
  const size_t bytes = plan->workspace_bytes();
  std::vector<uint8_t> workspace(bytes + 512, 0xff);  // every float of it is a NaN
  auto address = reinterpret_cast<uintptr_t>(workspace.data());
  address = (address + 255) / 256 * 256;
  const tandem::Status status = plan->run(arguments, reinterpret_cast<void*>(address), bytes);
  const uint8_t* end = reinterpret_cast<const uint8_t*>(address) + bytes;
  EXPECT_TRUE(std::all_of(end, const_cast<const uint8_t*>(workspace.data()) + workspace.size(), [](uint8_t byte) {
    return byte == 0xff;
  })) << "the run wrote beyond its workspace";
  return status;
}

tandem::Status Case::run() { return testing_support::run(tandem::Pass::forward, problem(), arguments()); }

oracle::Verdict Case::judge() const {
  const oracle::Problem p = oracle_problem();
  return oracle::judge_forward(p, oracle::all_rows(p), out.oracle(), lse.oracle_lse());
}

void Case::check() {
  SCOPED_TRACE(config.text());
  const tandem::Status status = run();
  ASSERT_TRUE(status.ok()) << status.argument << ": " << status.message;
  const oracle::Verdict verdict = judge();
  EXPECT_TRUE(verdict.ok) << verdict.text;
  for (const Tensor* tensor : {&query, &key, &value, &out, &lse}) EXPECT_TRUE(tensor->guards_intact());
  expect_cleared(out, true);
  expect_cleared(lse, true);
}

tandem::Problem Case::backward_problem() const {
  tandem::Problem p = problem();
  p.grad_out = grad_out.spec();
  p.grad_query = grad_query.spec();
  p.grad_key = grad_key.spec();
  p.grad_value = grad_value.spec();
  return p;
}

tandem::Arguments Case::backward_arguments() const {
  tandem::Arguments a = arguments();
  a.grad_out = grad_out.view();
  a.grad_query = grad_query.view();
  a.grad_key = grad_key.view();
  a.grad_value = grad_value.view();
  return a;
}

tandem::Status Case::run_backward() {
  if (const tandem::Status status = run(); !status.ok()) return status;
  return testing_support::run(tandem::Pass::backward, backward_problem(), backward_arguments());
}

oracle::Verdict Case::judge_backward() const {
  return oracle::judge_backward(oracle_problem(), grad_out.oracle(), grad_query.oracle(), grad_key.oracle(),
                                grad_value.oracle());
}

void Case::check_backward() {
  SCOPED_TRACE(config.text());
  const tandem::Status status = run_backward();
  ASSERT_TRUE(status.ok()) << status.argument << ": " << status.message;
  const oracle::Verdict verdict = judge_backward();
  EXPECT_TRUE(verdict.ok) << verdict.text;
  for (const Tensor* tensor : {&grad_out, &grad_query, &grad_key, &grad_value}) EXPECT_TRUE(tensor->guards_intact());
  expect_cleared(grad_query, true);
  expect_cleared(grad_key, false);
  expect_cleared(grad_value, false);
}

/// Rows of a result that no sequence uses hold zeros; -inf in the log-sum-exp.
void Case::expect_cleared(const Tensor& tensor, bool of_query) const {
  const bool packed = !(of_query ? config.cu_query : config.cu_key).empty();
  const bool is_lse = &tensor == &lse;
  const auto size = tensor.spec().size;
  const int64_t entries = packed ? 1 : config.batch;
  const int64_t rows = is_lse ? size[packed ? 1 : 2] : size[packed ? 0 : 1];
  const int64_t heads = of_query ? config.query_heads : config.key_heads;
  const double cleared = is_lse ? -std::numeric_limits<double>::infinity() : 0;
  const std::vector<oracle::Sequence> sequences = oracle_problem().sequences;
  for (int64_t b = 0; b < entries; ++b) {
    std::vector<bool> used(static_cast<size_t>(rows), false);
    for (size_t s = 0; s < sequences.size(); ++s) {
      if (!packed && static_cast<int64_t>(s) != b) continue;
      const int64_t first = of_query ? sequences[s].first_query : sequences[s].first_key;
      const int64_t count = of_query ? sequences[s].queries : sequences[s].keys;
      std::fill_n(used.begin() + first, count, true);
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t h = 0; h < heads && !used[static_cast<size_t>(i)]; ++h) {
        std::vector<int64_t> index = is_lse ? std::vector<int64_t>{b, h, i} : std::vector<int64_t>{b, i, h, 0};
        if (packed) index.erase(index.begin());
        EXPECT_EQ(tensor.get(index), cleared) << "unused row " << i;
      }
    }
  }
}

}  // namespace testing_support
