// The one list of the kernels that are compiled into the library. The build reads the names from here (a line that starts
// with a quoted name is a kernel); each row says what it buys.
#pragma once

#include <array>
#include <string_view>

#include "backends/sm90/forward/config.hpp"

namespace tandem::internal::sm90 {

// clang-format off
inline constexpr forward::Variant forward_variants[] = {
    {"forward_bf16_d64", {.dtype = Dtype::bf16, .head_dim = 64, .value_dim = 64, .consumers = 3, .tile_key = 128}},
    {"forward_bf16_d96", {.dtype = Dtype::bf16, .head_dim = 96, .value_dim = 96, .consumers = 2, .tile_key = 128}},
    {"forward_bf16_d128", {.dtype = Dtype::bf16, .head_dim = 128, .value_dim = 128, .consumers = 2, .tile_key = 128}},
    {"forward_bf16_d192_v128", {.dtype = Dtype::bf16, .head_dim = 192, .value_dim = 128, .consumers = 2, .tile_key = 112, .output_in_query = true}},
    {"forward_bf16_d192", {.dtype = Dtype::bf16, .head_dim = 192, .value_dim = 192, .consumers = 2, .tile_key = 96, .output_in_query = true}},
    {"forward_bf16_d256", {.dtype = Dtype::bf16, .head_dim = 256, .value_dim = 256, .consumers = 2, .tile_key = 80, .output_in_query = true}},
};
// clang-format on

/// Kernels round the main ones.
inline constexpr const char* helper_kernels[] = {
    "copy_16bit",  // tensors that TMA can't take as they lie
};

/// The configuration of a variant by name; for generated sources.
consteval forward::Config forward_config(std::string_view name) {
  for (const forward::Variant& variant : forward_variants)
    if (name == variant.name) return variant.config;
  throw "no such variant";
}

}  // namespace tandem::internal::sm90
