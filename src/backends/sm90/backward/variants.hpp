// The backward kernels that are compiled into the library, beside those of backends/sm90/variants.hpp. The build reads
// the names from here (a line that starts with a quoted name is a kernel).
#pragma once

#include <string_view>

#include "backends/sm90/backward/config.hpp"
#include "backends/sm90/backward/query_config.hpp"

namespace tandem::internal::sm90 {

// clang-format off
inline constexpr backward::Variant backward_variants[] = {
    // 609 at full 8k with one slot and no turns; 579 and 543 with two slots, 568 with turns, 563 with both.
    {"backward_bf16_d64", {.dtype = Dtype::bf16, .head_dim = 64, .tile_query = 128, .slots = 1, .early_value = false, .turns = false}},
    {"backward_fp16_d64", {.dtype = Dtype::fp16, .head_dim = 64, .tile_query = 128, .slots = 1, .early_value = false, .turns = false}},
    // where tiles wait for their turn both pay: 568 against 509 at full 8k, deterministic; 563 against 457 at causal 16k.
    {"backward_bf16_d64_ordered", {.dtype = Dtype::bf16, .head_dim = 64, .tile_query = 128, .slots = 2, .early_value = false, .turns = true}, true},
    {"backward_fp16_d64_ordered", {.dtype = Dtype::fp16, .head_dim = 64, .tile_query = 128, .slots = 2, .early_value = false, .turns = true}, true},
    {"backward_bf16_d128", {.dtype = Dtype::bf16, .head_dim = 128, .tile_query = 64, .slots = 2, .early_value = true, .turns = true}},
    {"backward_fp16_d128", {.dtype = Dtype::fp16, .head_dim = 128, .tile_query = 64, .slots = 2, .early_value = true, .turns = true}},
    {"backward_bf16_d192", {.dtype = Dtype::bf16, .division = backward::Division::gradients, .head_dim = 192, .tile_query = 64}},
    {"backward_fp16_d192", {.dtype = Dtype::fp16, .division = backward::Division::gradients, .head_dim = 192, .tile_query = 64}},
    {"backward_bf16_d256", {.dtype = Dtype::bf16, .division = backward::Division::gradients, .head_dim = 256, .tile_query = 64}},
    {"backward_fp16_d256", {.dtype = Dtype::fp16, .division = backward::Division::gradients, .head_dim = 256, .tile_query = 64}},
};

/// Kernels of dQ alone, for those with Division::gradients.
inline constexpr backward::QueryVariant backward_query_variants[] = {
    {"backward_query_bf16_d192", {.dtype = Dtype::bf16, .head_dim = 192, .value_stages = 2}},
    {"backward_query_fp16_d192", {.dtype = Dtype::fp16, .head_dim = 192, .value_stages = 2}},
    {"backward_query_bf16_d256", {.dtype = Dtype::bf16, .head_dim = 256, .value_stages = 1}},
    {"backward_query_fp16_d256", {.dtype = Dtype::fp16, .head_dim = 256, .value_stages = 1}},
};
// clang-format on

/// The kernels before and after the main one.
inline constexpr const char* backward_helpers[] = {
    "backward_prepare",  // D, LSE, zeros
    "backward_finish",   // dQ to 16 bits
};

/// The configuration of a variant by name; for generated sources.
consteval backward::Config backward_config(std::string_view name) {
  for (const backward::Variant& variant : backward_variants)
    if (name == variant.name) return variant.config;
  throw "no such variant";
}
consteval backward::QueryConfig backward_query_config(std::string_view name) {
  for (const backward::QueryVariant& variant : backward_query_variants)
    if (name == variant.name) return variant.config;
  throw "no such variant";
}

}  // namespace tandem::internal::sm90
