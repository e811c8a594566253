// The one list of the kernels that are compiled into the library. The build reads the names from here (a line that
// starts with a quoted name is a kernel); each says what it buys, in TFLOP/s on one H200 (docs/performance-log.md).
#pragma once

#include <array>
#include <string_view>

#include "backends/sm90/forward/config.hpp"

namespace tandem::internal::sm90 {

// clang-format off
inline constexpr forward::Variant forward_variants[] = {
    // three consumers: 632 TFLOP/s at full 8k, where two reach 509.
    {"forward_bf16_d64", {.dtype = Dtype::bf16, .head_dim = 64, .value_dim = 64, .consumers = 3, .tile_key = 128}},
    {"forward_fp16_d64", {.dtype = Dtype::fp16, .head_dim = 64, .value_dim = 64, .consumers = 3, .tile_key = 128}},
    // less work beyond the mask: 248 against 219 at causal 512.
    {"forward_bf16_d64_short", {.dtype = Dtype::bf16, .head_dim = 64, .value_dim = 64, .consumers = 2, .tile_key = 128}, 0.81F},
    {"forward_fp16_d64_short", {.dtype = Dtype::fp16, .head_dim = 64, .value_dim = 64, .consumers = 2, .tile_key = 128}, 0.81F},
    // three consumers with 96 keys are 5% faster at full 8k, but 10% slower at causal 8k and 13% at 512.
    {"forward_bf16_d96", {.dtype = Dtype::bf16, .head_dim = 96, .value_dim = 96, .consumers = 2, .tile_key = 128}},
    {"forward_fp16_d96", {.dtype = Dtype::fp16, .head_dim = 96, .value_dim = 96, .consumers = 2, .tile_key = 128}},
    // of 96 to 176 keys the fastest at every length (study); 112, 144 and 160 lose 5% and more.
    {"forward_bf16_d128", {.dtype = Dtype::bf16, .head_dim = 128, .value_dim = 128, .consumers = 2, .tile_key = 128}},
    {"forward_fp16_d128", {.dtype = Dtype::fp16, .head_dim = 128, .value_dim = 128, .consumers = 2, .tile_key = 128}},
    // 574 at 512 against 550 with 112 keys and an output tile of its own.
    {"forward_bf16_d192_v128", {.dtype = Dtype::bf16, .head_dim = 192, .value_dim = 128, .consumers = 2, .tile_key = 128, .output_in_query = true}},
    {"forward_fp16_d192_v128", {.dtype = Dtype::fp16, .head_dim = 192, .value_dim = 128, .consumers = 2, .tile_key = 128, .output_in_query = true}},
    // an output tile of its own: 579 at 512 against 518 with 96 keys and none.
    {"forward_bf16_d192", {.dtype = Dtype::bf16, .head_dim = 192, .value_dim = 192, .consumers = 2, .tile_key = 80}},
    {"forward_fp16_d192", {.dtype = Dtype::fp16, .head_dim = 192, .value_dim = 192, .consumers = 2, .tile_key = 80}},
    // as many keys as shared memory holds.
    {"forward_bf16_d256", {.dtype = Dtype::bf16, .head_dim = 256, .value_dim = 256, .consumers = 2, .tile_key = 80, .output_in_query = true}},
    {"forward_fp16_d256", {.dtype = Dtype::fp16, .head_dim = 256, .value_dim = 256, .consumers = 2, .tile_key = 80, .output_in_query = true}},
    // divides 512: 581 there against 549.
    {"forward_bf16_d256_short", {.dtype = Dtype::bf16, .head_dim = 256, .value_dim = 256, .consumers = 2, .tile_key = 64, .output_in_query = true}, 0.97F},
    {"forward_fp16_d256_short", {.dtype = Dtype::fp16, .head_dim = 256, .value_dim = 256, .consumers = 2, .tile_key = 64, .output_in_query = true}, 0.97F},
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
