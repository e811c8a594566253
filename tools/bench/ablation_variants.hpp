// The one list of the ablation's kernels: the kernel of bf16, head dim 128, with ideas left out. The build reads the
// names from here (a line that starts with a quoted name is a kernel) and compiles them into the program.
#pragma once

#include <string_view>

#include "backends/sm90/forward/config.hpp"

namespace tandem::tools {

struct AblationKernel {
  const char* name;
  const char* changes;
  internal::sm90::forward::Config config;
};

namespace ablation {

using enum internal::sm90::forward::Overlap;
using enum internal::sm90::forward::RowMaximum;

// clang-format off
inline constexpr AblationKernel kernels[] = {
    {"ablation_all", "the library's kernel", {}},
    {"ablation_no_pingpong", "warpgroups run without the ping-pong order", {.pingpong = false}},
    {"ablation_no_overlap", "no overlap within a warpgroup", {.overlap = none}},
    {"ablation_neither", "no ping-pong, no overlap within a warpgroup", {.pingpong = false, .overlap = none}},
    {"ablation_no_specialisation", "no producer warpgroup: a consumer loads in line", {.warp_specialised = false}},
    {"ablation_80_keys", "key blocks of 80: what three stages compare with", {.tile_key = 80}},
    {"ablation_three_stage", "key blocks of 80, softmax beside both products", {.tile_key = 80, .overlap = three_stage}},
    // The paper's table 2 is of kernels with a row maximum in every block.
    {"ablation_maximum", "row maximum in every block", {.row_maximum = every_block}},
    {"ablation_maximum_no_pingpong", "the same, no ping-pong", {.pingpong = false, .row_maximum = every_block}},
    {"ablation_maximum_no_overlap", "the same, no overlap within a warpgroup", {.overlap = none, .row_maximum = every_block}},
    {"ablation_maximum_neither", "the same, no ping-pong, no overlap", {.pingpong = false, .overlap = none, .row_maximum = every_block}},
    {"ablation_maximum_no_specialisation", "the same, no producer warpgroup", {.warp_specialised = false, .row_maximum = every_block}},
    {"ablation_maximum_80_keys", "the same, key blocks of 80", {.tile_key = 80, .row_maximum = every_block}},
    {"ablation_maximum_three_stage", "the same, softmax beside both products", {.tile_key = 80, .overlap = three_stage, .row_maximum = every_block}},
    {"ablation_maximum_nothing", "the same, and none of the ideas", {.warp_specialised = false, .pingpong = false, .overlap = none, .row_maximum = every_block}},
};
// clang-format on

/// The configuration of a kernel by name; for generated sources.
consteval internal::sm90::forward::Config config(std::string_view name) {
  for (const AblationKernel& kernel : kernels)
    if (name == kernel.name) return kernel.config;
  throw "no such kernel";
}

}  // namespace ablation
}  // namespace tandem::tools
