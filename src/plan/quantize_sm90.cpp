// Decisions of the Hopper quantiser.
#include "plan/quantize_sm90.hpp"

#include <algorithm>
#include <cstdio>

#include "common/status.hpp"

namespace tandem::internal {
namespace {

namespace quantize = sm90::quantize;
using Operand = QuantizePlan::Operand;
using PassPlan = QuantizePlan::Pass;

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int whole_warps(int64_t threads) { return static_cast<int>(divide_up(threads, 32) * 32); }

/// What the three tensors have in common.
struct Item {
  const char* name;
  const TensorSpec& source;
  const TensorSpec& target;
  Granularity granularity;
  int rows;
  const char* rows_name;
  bool of_query;
};

std::array<Item, 3> items(const Attention& a) {
  const Quantization& q = a.quantization;
  return {{{"query", a.query, a.quantized_query, q.query, q.query_rows, "quantization.query_rows", true},
           {"key", a.key, a.quantized_key, q.key, q.key_rows, "quantization.key_rows", false},
           {"value", a.value, a.quantized_value, q.value, q.value_rows, "quantization.value_rows", false}}};
}

Status check_supported(const Item& item, bool groups, Backend backend) {
  const Dtype dtype = item.source.dtype;
  if (dtype != Dtype::bf16 && dtype != Dtype::fp16)
    return error(Code::unsupported, item.name, "the %s backend quantises fp16 and bf16, not %s", name(backend),
                 name(dtype));
  const int64_t columns = item.source.size[static_cast<size_t>(item.source.rank - 1)];
  if (columns % 8 != 0 || columns > 256)
    return error(Code::unsupported, item.name,
                 "the %s backend quantises head dims that are multiples of 8 up to 256, not %lld", name(backend),
                 static_cast<long long>(columns));
  if (item.granularity != Granularity::block) return {};
  if (item.rows <= 0)
    return error(Code::invalid_argument, item.rows_name,
                 "%s must be given; Plan::quantization() of the forward plan tells it", item.rows_name);
  if (groups && item.rows % value_group != 0)
    return error(Code::unsupported, item.rows_name, "%s is %d; for a packed value the %s backend takes multiples of %d",
                 item.rows_name, item.rows, name(backend), value_group);
  return {};
}

class Planner {
 public:
  Planner(const Attention& a, const sm90::DeviceTraits& device) : a_(a), device_(device) {}

  Status add(int index, const Item& item) {
    Operand& o = plan_.operands[static_cast<size_t>(index)];
    const bool is_value = index == QuantizePlan::value;
    const bool groups = is_value && a_.quantization.value_layout == ValueLayout::packed;
    if (const Status status = check_supported(item, groups, a_.backend); !status.ok()) return status;
    o.present = true;
    o.groups = groups;
    o.heads = static_cast<int32_t>(item.source.size[static_cast<size_t>(item.source.rank - 2)]);
    o.columns = static_cast<int32_t>(item.source.size[static_cast<size_t>(item.source.rank - 1)]);
    o.lanes = 1;
    while (o.lanes * quantize::piece * quantize::pieces_of_thread < o.columns) o.lanes *= 2;
    plan_search(o, item, is_value && a_.searches_mean());
    const bool own = item.granularity == Granularity::block;
    const int rows = own ? item.rows : groups ? default_groups(o) * value_group : default_rows(o);
    o.quantize = groups ? groups_pass(o, item, rows) : rows_pass(o, item, rows);
    return check_grid(o, item);
  }

  QuantizePlan plan_;

 private:
  /// Bytes that a block of threads keeps in flight are what counts: 256 threads of 64 bytes, several of them an SM.
  static int default_rows(const Operand& o) { return 256 / o.lanes; }
  static int default_groups(const Operand& o) { return std::max(1, 512 / o.columns); }

  size_t reserve(int64_t floats) {
    const size_t at = plan_.workspace_bytes;
    plan_.workspace_bytes += (static_cast<size_t>(floats) * sizeof(float) + 255) / 256 * 256;
    return at;
  }

  PassPlan blocks_pass(const Operand& o, const Item& item, int rows) const {
    const int64_t longest = item.of_query ? a_.max_query : a_.max_key;
    const int64_t total = item.of_query ? a_.total_query : a_.total_key;
    const bool packed = item.of_query ? a_.packed_query : a_.packed_key;
    const int64_t of_sequence = divide_up(longest, rows);
    const int64_t all = packed ? (total > 0 ? total / rows + a_.batch : 0) : a_.batch * of_sequence;
    PassPlan pass;
    pass.grid = all * o.heads;
    pass.blocks = {rows, static_cast<int32_t>(of_sequence), static_cast<int32_t>(all)};
    return pass;
  }

  /// As many rows at once as fit, and parts of the same size where not all do.
  PassPlan rows_pass(const Operand& o, const Item& item, int rows) const {
    PassPlan pass = blocks_pass(o, item, rows);
    pass.parts = static_cast<int>(divide_up(int64_t{rows} * o.lanes, quantize::threads));
    pass.at_once = static_cast<int>(divide_up(rows, pass.parts));
    pass.threads = whole_warps(int64_t{pass.at_once} * o.lanes);
    share_heads(pass, o, item);
    return pass;
  }

  PassPlan groups_pass(const Operand& o, const Item& item, int rows) const {
    PassPlan pass = blocks_pass(o, item, rows);
    const int64_t groups = rows / value_group, pairs = o.columns / 2;
    pass.parts = static_cast<int>(divide_up(groups * pairs, quantize::threads));
    pass.at_once = static_cast<int>(divide_up(groups, pass.parts));
    pass.threads = whole_warps(pass.at_once * pairs);
    share_heads(pass, o, item);
    return pass;
  }

  /// Heads that a block of threads takes one after the other: they share what comes before the first load, and the
  /// rotary tables, which are twice the size of what they turn. With 4 of them 0.76 of the copy's bandwidth, with one
  /// 0.69 (bench/results/quantize.json); enough blocks of threads must be left.
  int heads_at_once(const Operand& o, const Item& item, int rows) const {
    const int64_t blocks = blocks_pass(o, item, rows).grid, least = device_.multiprocessors * 3 / 2;
    int heads = 1;
    while (heads < 4 && 2 * heads <= o.heads && blocks / (2 * heads) >= least) heads *= 2;
    return heads;
  }

  void share_heads(PassPlan& pass, const Operand& o, const Item& item) const {
    pass.heads_at_once = heads_at_once(o, item, pass.blocks.tile);
    pass.grid = pass.grid / o.heads * divide_up(o.heads, pass.heads_at_once);
  }

  /// What is read before: for means, and for scales that depend on more than a block.
  void plan_search(Operand& o, const Item& item, bool means) {
    const bool own = item.granularity == Granularity::block, scales = !own && !a_.quantization.amax;
    if (means)
      plan_means(o, item, scales);
    else if (scales)
      o.search = rows_pass(o, item, default_rows(o));
    if (scales) o.largest_at = reserve(means ? a_.batch * o.heads : o.search.blocks.per_head * int64_t{o.heads});
    if (!own) o.scales_grid = item.granularity == Granularity::tensor ? 1 : a_.batch * o.heads;
  }

  void plan_means(Operand& o, const Item& item, bool extremes) {
    o.columns_search = blocks_pass(o, item, mean_chunk);
    o.columns_search.threads = whole_warps(mean_lanes * o.columns / quantize::piece);
    o.columns_at = reserve(o.columns_search.grid * (extremes ? 3 : 1) * o.columns);
    o.means_grid = a_.batch * o.heads;
  }

  static Status check_grid(const Operand& o, const Item& item) {
    constexpr int64_t most = int64_t{1} << 31;
    for (const int64_t grid : {o.columns_search.grid, o.search.grid, o.quantize.grid,
                               o.quantize.grid * o.quantize.heads_at_once, o.means_grid})
      if (grid >= most)
        return error(Code::unsupported, item.name, "%lld blocks are too many for one launch; the limit is 2^31",
                     static_cast<long long>(grid));
    return {};
  }

  const Attention& a_;
  const sm90::DeviceTraits& device_;
};

void describe(std::string& text, const char* name, const QuantizePlan::Operand& o) {
  const auto line = [&](const char* what, const char* kernel, const QuantizePlan::Pass& pass) {
    if (pass.grid == 0) return;
    char buffer[200];
    std::snprintf(buffer, sizeof buffer, "\n%s: %s, kernel %s, blocks of %d rows, %d threads, grid %lld", name, what,
                  kernel, pass.blocks.tile, pass.threads, static_cast<long long>(pass.grid));
    text += buffer;
  };
  line("search for means", quantize::columns_kernel, o.columns_search);
  line("search for scales", quantize::rows_kernel, o.search);
  line("quantise", o.groups ? quantize::value_kernel : quantize::rows_kernel, o.quantize);
}

}  // namespace

Result<QuantizePlan> plan_quantize_sm90(const Attention& a, const sm90::DeviceTraits& device) noexcept {
  Planner planner(a, device);
  int index = 0;
  for (const Item& item : items(a)) {
    if (item.source.present())
      if (const Status status = planner.add(index, item); !status.ok()) return status;
    ++index;
  }
  if (a.quantization.hadamard) planner.plan_.hadamard = hadamard_block(static_cast<int32_t>(a.head_dim));
  return planner.plan_;
}

std::string describe(const QuantizePlan& plan, const Attention& a) {
  std::string text = std::string("backend: ") + name(a.backend);
  const char* names[] = {"query", "key", "value"};
  for (size_t i = 0; i < 3; ++i) describe(text, names[i], plan.operands[i]);
  if (plan.hadamard > 1)
    text += "\nsigns and Hadamard matrix: blocks of " + std::to_string(plan.hadamard) + " dimensions";
  text += "\nworkspace: " + std::to_string(plan.workspace_bytes) + " bytes\n";
  return text;
}

}  // namespace tandem::internal
