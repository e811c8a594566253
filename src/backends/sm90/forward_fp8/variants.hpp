// The 8-bit forward kernels that are compiled into the library (a line that starts with a quoted name is a kernel), and
// what each buys.
#pragma once

#include <string_view>

#include "backends/sm90/forward_fp8/config.hpp"

namespace tandem::internal::sm90 {

// clang-format off
inline constexpr forward_fp8::Variant forward_fp8_variants[] = {
    {"forward_e4m3_d64", {.dtype = Dtype::e4m3, .head_dim = 64, .consumers = 3, .tile_key = 128, .output_first = true}},
    {"forward_e4m3_d96", {.dtype = Dtype::e4m3, .head_dim = 96, .consumers = 3, .tile_key = 96, .output_first = true}},
    {"forward_e4m3_d128", {.dtype = Dtype::e4m3, .head_dim = 128, .consumers = 2, .tile_key = 128, .late_turn = true}},
    {"forward_e4m3_d128_long", {.dtype = Dtype::e4m3, .head_dim = 128, .consumers = 3, .tile_key = 96, .output_first = true}, 2048},
    {"forward_e4m3_d192", {.dtype = Dtype::e4m3, .head_dim = 192, .consumers = 2, .tile_key = 96}},
    // without promotion there is room for 96 keys and a second query.
    {"forward_e4m3_d256", {.dtype = Dtype::e4m3, .head_dim = 256, .consumers = 2, .tile_key = 64, .query_buffers = 1}},
    {"forward_e4m3_d256_n96", {.dtype = Dtype::e4m3, .head_dim = 256, .consumers = 2, .tile_key = 96, .promotes = false}, 1024},
    // int8 queries and keys: their scores keep all bits.
    {"forward_int8_d64", {.dtype = Dtype::int8, .head_dim = 64, .consumers = 3, .tile_key = 128, .output_first = true}},
    {"forward_int8_d96", {.dtype = Dtype::int8, .head_dim = 96, .consumers = 3, .tile_key = 96, .output_first = true}},
    {"forward_int8_d128", {.dtype = Dtype::int8, .head_dim = 128, .consumers = 2, .tile_key = 128, .late_turn = true}},
    {"forward_int8_d128_long", {.dtype = Dtype::int8, .head_dim = 128, .consumers = 3, .tile_key = 96, .output_first = true}, 2048},
    {"forward_int8_d192", {.dtype = Dtype::int8, .head_dim = 192, .consumers = 2, .tile_key = 96}},
    {"forward_int8_d256", {.dtype = Dtype::int8, .head_dim = 256, .consumers = 2, .tile_key = 64, .query_buffers = 1}},
    // values in rows. At d256 promotion leaves room for 32 keys.
    {"forward_e4m3_d64_rows", {.dtype = Dtype::e4m3, .head_dim = 64, .consumers = 3, .tile_key = 128, .value_layout = ValueLayout::rows, .output_first = true}},
    {"forward_e4m3_d96_rows", {.dtype = Dtype::e4m3, .head_dim = 96, .consumers = 3, .tile_key = 96, .value_layout = ValueLayout::rows, .output_first = true}},
    {"forward_e4m3_d128_rows", {.dtype = Dtype::e4m3, .head_dim = 128, .consumers = 2, .tile_key = 128, .value_layout = ValueLayout::rows, .late_turn = true}},
    {"forward_e4m3_d128_rows_long", {.dtype = Dtype::e4m3, .head_dim = 128, .consumers = 3, .tile_key = 96, .value_layout = ValueLayout::rows, .output_first = true}, 2048},
    {"forward_e4m3_d192_rows", {.dtype = Dtype::e4m3, .head_dim = 192, .consumers = 2, .tile_key = 96, .value_layout = ValueLayout::rows, .query_buffers = 1}},
    {"forward_e4m3_d256_rows", {.dtype = Dtype::e4m3, .head_dim = 256, .consumers = 2, .tile_key = 32, .value_layout = ValueLayout::rows, .query_buffers = 1}},
    {"forward_e4m3_d256_rows_n64", {.dtype = Dtype::e4m3, .head_dim = 256, .consumers = 2, .tile_key = 64, .value_layout = ValueLayout::rows, .promotes = false}},
    {"forward_int8_d64_rows", {.dtype = Dtype::int8, .head_dim = 64, .consumers = 3, .tile_key = 128, .value_layout = ValueLayout::rows, .output_first = true}},
    {"forward_int8_d128_rows", {.dtype = Dtype::int8, .head_dim = 128, .consumers = 2, .tile_key = 128, .value_layout = ValueLayout::rows, .late_turn = true}},
    {"forward_int8_d192_rows", {.dtype = Dtype::int8, .head_dim = 192, .consumers = 2, .tile_key = 96, .value_layout = ValueLayout::rows, .query_buffers = 1}},
    {"forward_int8_d256_rows", {.dtype = Dtype::int8, .head_dim = 256, .consumers = 2, .tile_key = 32, .value_layout = ValueLayout::rows, .query_buffers = 1}},
};
// clang-format on

/// The configuration of a variant by name; for generated sources.
consteval forward_fp8::Config forward_fp8_config(std::string_view name) {
  for (const forward_fp8::Variant& variant : forward_fp8_variants)
    if (name == variant.name) return variant.config;
  throw "no such variant";
}

}  // namespace tandem::internal::sm90
