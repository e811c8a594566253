// Tensor maps of attention's tensors.
#include "backends/sm90/tensor_maps.hpp"

#include "backends/sm90/forward/params.hpp"
#include "plan/spec.hpp"

namespace tandem::internal::sm90 {

const char* unfit_for_tma(const TensorSpec& spec, const Side& side) noexcept {
  const int64_t unit = 16 / element_bytes(spec.dtype);
  const Strides s = strides(spec);
  if (spec.alignment < 16) return "its data is not promised to be 16-byte aligned";
  const auto fits = [unit](int64_t size, int64_t stride) { return size <= 1 || (stride > 0 && stride % unit == 0); };
  if (!fits(side.rows, s.row) || !fits(side.heads, s.head) || !fits(side.batch, s.batch))
    return "a stride is 0 or not a multiple of 16 bytes";
  // A ragged map addresses all rows from one base in steps of the row stride.
  if (side.ragged && side.batch > 1 && (s.row <= 0 || s.batch % s.row != 0))
    return "its batch stride is not a multiple of its row stride, which used lengths need";
  return nullptr;
}

TensorMapSpec attention_map(const TensorSpec& spec, void* data, const Side& side, int columns, int chunk_columns,
                            int tile_rows) noexcept {
  const Strides s = strides(spec);
  // A dimension of one element is never stepped over; its stride only has to be valid.
  const auto element = static_cast<uint64_t>(element_bytes(spec.dtype));
  const auto bytes = [&](int64_t n, int64_t stride) { return n <= 1 ? 16 : static_cast<uint64_t>(stride) * element; };
  const auto size = [](int64_t n) { return static_cast<uint64_t>(n < 1 ? 1 : n); };
  const uint64_t row_bytes =
      side.ragged && s.row > 0 ? static_cast<uint64_t>(s.row) * element : bytes(side.rows, s.row);
  TensorMapSpec map;
  map.base = data;
  map.dtype = spec.dtype;
  map.rank = 5;
  map.size[0] = size(columns);
  map.size[1] = side.ragged ? uint64_t{forward::ragged_rows} : size(side.rows);
  map.size[2] = size(side.heads);
  map.stride_bytes[0] = row_bytes;
  map.stride_bytes[1] = bytes(side.heads, s.head);
  if (side.ragged) {
    constexpr uint64_t any = 0x7fff0000;
    map.size[3] = any;
    map.size[4] = any;
    map.stride_bytes[2] = row_bytes;
    map.stride_bytes[3] = (uint64_t{1} << 34) - row_bytes;
  } else {
    map.size[3] = size(side.batch);
    map.size[4] = 1;
    map.stride_bytes[2] = bytes(side.batch, s.batch);
    map.stride_bytes[3] = 16;
  }
  map.box[0] = static_cast<uint32_t>(chunk_columns);
  map.box[1] = static_cast<uint32_t>(tile_rows);
  map.box[2] = map.box[3] = map.box[4] = 1;
  map.swizzle = static_cast<ptx::Swizzle>(chunk_columns * static_cast<int>(element));
  return map;
}

}  // namespace tandem::internal::sm90
