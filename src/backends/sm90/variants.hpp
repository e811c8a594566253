// The one list of the kernels that are compiled into the library. The build reads the names from here (a line that
// starts with a quoted name is a kernel); each says what it buys, in TFLOP/s on one H200
// (bench/results/forward-tuning.json; two figures compared are of one run).
#pragma once

#include <array>
#include <string_view>

#include "backends/sm90/forward/config.hpp"

namespace tandem::internal::sm90 {

// clang-format off
inline constexpr forward::Variant forward_variants[] = {
    // a third consumer: 554 against 490 with two at full 8k; causal 8k 597 against 554, and 552 with 64 keys.
    {"forward_bf16_d64", {.dtype = Dtype::bf16, .head_dim = 64, .value_dim = 64, .consumers = 3, .tile_key = 128}},
    {"forward_fp16_d64", {.dtype = Dtype::fp16, .head_dim = 64, .value_dim = 64, .consumers = 3, .tile_key = 128}},
    // three consumers with 96 keys reach 668 against 608 at full 8k, but 574 against 614 causal and 378 against 448 at 512.
    {"forward_bf16_d96", {.dtype = Dtype::bf16, .head_dim = 96, .value_dim = 96, .consumers = 2, .tile_key = 128}},
    {"forward_fp16_d96", {.dtype = Dtype::fp16, .head_dim = 96, .value_dim = 96, .consumers = 2, .tile_key = 128}},
    // 112, 144 and 160 keys lose 6% and more at full 8k, 9% and more at 512.
    {"forward_bf16_d128", {.dtype = Dtype::bf16, .head_dim = 128, .value_dim = 128, .consumers = 2, .tile_key = 128}},
    {"forward_fp16_d128", {.dtype = Dtype::fp16, .head_dim = 128, .value_dim = 128, .consumers = 2, .tile_key = 128}},
    // 574 at full 512 against 550 with 112 keys (measured before the output was staged by pieces).
    {"forward_bf16_d192_v128", {.dtype = Dtype::bf16, .head_dim = 192, .value_dim = 128, .consumers = 2, .tile_key = 128, .output_pieces = 2}},
    {"forward_fp16_d192_v128", {.dtype = Dtype::fp16, .head_dim = 192, .value_dim = 128, .consumers = 2, .tile_key = 128, .output_pieces = 2}},
    // 640 at full 512 and 366 causal, against 615 and 360 with two stages, 593 and 350 with 80 keys, 574 and 347 with 96.
    {"forward_bf16_d192", {.dtype = Dtype::bf16, .head_dim = 192, .value_dim = 192, .consumers = 2, .tile_key = 64, .stages = 3, .output_pieces = 3, .output_buffers = 2}},
    {"forward_fp16_d192", {.dtype = Dtype::fp16, .head_dim = 192, .value_dim = 192, .consumers = 2, .tile_key = 64, .stages = 3, .output_pieces = 3, .output_buffers = 2}},
    // divides more lengths than the 80 keys that would fit: 581 against 549 at full 512, 822 against 817 at 8k.
    {"forward_bf16_d256", {.dtype = Dtype::bf16, .head_dim = 256, .value_dim = 256, .consumers = 2, .tile_key = 64, .output_pieces = 4, .output_buffers = 2}},
    {"forward_fp16_d256", {.dtype = Dtype::fp16, .head_dim = 256, .value_dim = 256, .consumers = 2, .tile_key = 64, .output_pieces = 4, .output_buffers = 2}},
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
