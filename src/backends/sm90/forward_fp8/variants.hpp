// The 8-bit forward kernels that are compiled into the library (a line that starts with a quoted name is a kernel), and
// what each buys, in TFLOP/s on one H200 (bench/results/fp8-forward-tuning.json; two figures compared are of one run).
#pragma once

#include <string_view>

#include "backends/sm90/forward_fp8/config.hpp"

namespace tandem::internal::sm90 {

// clang-format off
inline constexpr forward_fp8::Variant forward_fp8_variants[] = {
    // four consumers make whole tiles of 256 rows: full 512 523 against 338 with three and 128 keys, 2k 669 against 656.
    {"forward_e4m3_d64", {.dtype = Dtype::e4m3, .head_dim = 64, .consumers = 4, .tile_key = 64, .ascending = false, .bodies = 2, .output_first = true}},
    // causal 8448: 681 against 650 with four consumers.
    {"forward_e4m3_d64_long", {.dtype = Dtype::e4m3, .head_dim = 64, .consumers = 3, .tile_key = 128, .bodies = 2, .output_first = true}, 4096},
    // 982 against 783 with two consumers and 128 keys at full 8448.
    {"forward_e4m3_d96", {.dtype = Dtype::e4m3, .head_dim = 96, .consumers = 3, .tile_key = 96, .output_first = true}},
    // below 2k. A late turn: 993 against 959 at full 2k. One body: full 512 712 against 692, causal 419 against 399; without
    // promotion 725 and 432.
    {"forward_e4m3_d128", {.dtype = Dtype::e4m3, .head_dim = 128, .consumers = 2, .tile_key = 128, .bodies = 1, .late_turn = true, .promotes = false}},
    // 1215 against 1160 with two consumers at full 8448.
    {"forward_e4m3_d128_long", {.dtype = Dtype::e4m3, .head_dim = 128, .consumers = 3, .tile_key = 96, .bodies = 2, .output_first = true}, 2048},
    // for scales of 64 keys, and of 128 where sums are promoted.
    {"forward_e4m3_d128_n64", {.dtype = Dtype::e4m3, .head_dim = 128, .consumers = 3, .tile_key = 64, .bodies = 2, .output_first = true}, forward_fp8::never},
    {"forward_e4m3_d192", {.dtype = Dtype::e4m3, .head_dim = 192, .consumers = 2, .tile_key = 96}},
    {"forward_e4m3_d256", {.dtype = Dtype::e4m3, .head_dim = 256, .consumers = 2, .tile_key = 64, .query_buffers = 1, .tile_slots = 2, .bodies = 1}},
    // without promotion there is room for 96 keys: 1481 against 1429 at full 8448, but 475 against 508 at causal 512 (both
    // with four bodies).
    {"forward_e4m3_d256_n96", {.dtype = Dtype::e4m3, .head_dim = 256, .consumers = 2, .tile_key = 96, .tile_slots = 2, .promotes = false}, 1024},
    // int8 queries and keys: their scores keep all bits.
    {"forward_int8_d64", {.dtype = Dtype::int8, .head_dim = 64, .consumers = 4, .tile_key = 64, .ascending = false, .bodies = 2, .output_first = true}},
    // for long sequences too: a third consumer's registers don't hold the sums' origin beside the next tile's scores.
    {"forward_int8_d128", {.dtype = Dtype::int8, .head_dim = 128, .consumers = 2, .tile_key = 128, .bodies = 2, .late_turn = true}},
    {"forward_int8_d192", {.dtype = Dtype::int8, .head_dim = 192, .consumers = 2, .tile_key = 96}},
    {"forward_int8_d256", {.dtype = Dtype::int8, .head_dim = 256, .consumers = 2, .tile_key = 64, .query_buffers = 1, .tile_slots = 2, .bodies = 2}},
    // values in rows. At d256 promotion leaves room for 32 keys.
    {"forward_e4m3_d64_rows", {.dtype = Dtype::e4m3, .head_dim = 64, .consumers = 4, .tile_key = 64, .value_layout = ValueLayout::rows, .ascending = false, .bodies = 2, .output_first = true}},
    {"forward_e4m3_d96_rows", {.dtype = Dtype::e4m3, .head_dim = 96, .consumers = 3, .tile_key = 96, .value_layout = ValueLayout::rows, .output_first = true}},
    {"forward_e4m3_d128_rows", {.dtype = Dtype::e4m3, .head_dim = 128, .consumers = 2, .tile_key = 128, .value_layout = ValueLayout::rows, .bodies = 1, .late_turn = true}},
    {"forward_e4m3_d128_rows_long", {.dtype = Dtype::e4m3, .head_dim = 128, .consumers = 3, .tile_key = 96, .value_layout = ValueLayout::rows, .bodies = 2, .output_first = true}, 2048},
    {"forward_e4m3_d192_rows", {.dtype = Dtype::e4m3, .head_dim = 192, .consumers = 2, .tile_key = 96, .value_layout = ValueLayout::rows, .query_buffers = 1}},
    {"forward_e4m3_d256_rows", {.dtype = Dtype::e4m3, .head_dim = 256, .consumers = 2, .tile_key = 32, .value_layout = ValueLayout::rows, .query_buffers = 1, .tile_slots = 2}},
    {"forward_e4m3_d256_rows_n64", {.dtype = Dtype::e4m3, .head_dim = 256, .consumers = 2, .tile_key = 64, .value_layout = ValueLayout::rows, .promotes = false}},
    {"forward_int8_d64_rows", {.dtype = Dtype::int8, .head_dim = 64, .consumers = 4, .tile_key = 64, .value_layout = ValueLayout::rows, .ascending = false, .bodies = 2, .output_first = true}},
    {"forward_int8_d128_rows", {.dtype = Dtype::int8, .head_dim = 128, .consumers = 2, .tile_key = 128, .value_layout = ValueLayout::rows, .bodies = 2, .late_turn = true}},
    {"forward_int8_d192_rows", {.dtype = Dtype::int8, .head_dim = 192, .consumers = 2, .tile_key = 96, .value_layout = ValueLayout::rows, .query_buffers = 1}},
    {"forward_int8_d256_rows", {.dtype = Dtype::int8, .head_dim = 256, .consumers = 2, .tile_key = 32, .value_layout = ValueLayout::rows, .query_buffers = 1, .tile_slots = 2}},
};
// clang-format on

/// The configuration of a variant by name; for generated sources.
consteval forward_fp8::Config forward_fp8_config(std::string_view name) {
  for (const forward_fp8::Variant& variant : forward_fp8_variants)
    if (name == variant.name) return variant.config;
  throw "no such variant";
}

}  // namespace tandem::internal::sm90
