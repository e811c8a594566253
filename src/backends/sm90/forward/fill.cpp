// See fill.hpp.
#include "backends/sm90/forward/fill.hpp"

#include <algorithm>

namespace tandem::internal::sm90::forward {

void fill(Params& params, const Attention& a, const ForwardSchedule& plan, const Arguments& arguments,
          const TensorSpec& query, const TensorSpec& key) noexcept {
  const auto lengths = [](const TensorView& view, bool present) {
    return present ? static_cast<const int32_t*>(view.data) : nullptr;
  };
  const auto pitch = [](const TensorSpec& spec) {
    const Strides s = strides(spec);
    return static_cast<int32_t>(s.row > 0 ? s.batch / s.row : 0);
  };
  params.query_rows = {lengths(arguments.cu_query, a.packed_query), lengths(arguments.used_query, a.used_query),
                       static_cast<int32_t>(a.total_query),         static_cast<int32_t>(a.max_query),
                       plan.query_side.ragged ? pitch(query) : 0,   plan.query_side.ragged};
  params.key_rows = {lengths(arguments.cu_key, a.packed_key), lengths(arguments.used_key, a.used_key),
                     static_cast<int32_t>(a.total_key),       static_cast<int32_t>(a.max_key),
                     plan.key_side.ragged ? pitch(key) : 0,   plan.key_side.ragged};
  if (a.lse.present()) {
    const Strides s = lse_strides(a.lse);
    params.lse = static_cast<float*>(arguments.lse.data);
    params.lse_batch_stride = s.batch;
    params.lse_row_stride = s.row;
    params.lse_head_stride = s.head;
  }
  params.sinks = a.sinks ? static_cast<const float*>(arguments.sinks.data) : nullptr;
  params.batch = static_cast<int32_t>(a.batch);
  params.query_heads = static_cast<int32_t>(a.query_heads);
  params.group = static_cast<int32_t>(a.group());
  params.has_diagonal = a.diagonal.has_value();
  params.diagonal = a.diagonal.value_or(0);
  params.scan = plan.scan;
  params.window = a.window;
  params.order = plan.order;
  params.tiles = plan.tiles;
  params.scale_log2 = a.scale_log2();
}

}  // namespace tandem::internal::sm90::forward
