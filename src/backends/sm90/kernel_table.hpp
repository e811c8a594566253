// What the generated table of kernels is made with: a kernel's configuration by name, from variants.hpp.
#pragma once

#include <array>

#include "backends/sm90/backward/params.hpp"
#include "backends/sm90/backward/variants.hpp"
#include "backends/sm90/copy/params.hpp"
#include "backends/sm90/forward_fp8/variants.hpp"
#include "backends/sm90/kernels.hpp"
#include "backends/sm90/quantize/params.hpp"
#include "backends/sm90/variants.hpp"

namespace tandem::internal::sm90 {

constexpr KernelInfo describe_kernel(std::string_view name, int registers, int local_bytes) {
  for (const forward::Variant& variant : forward_variants) {
    if (name != variant.name) continue;
    const forward::Config& c = variant.config;
    return {variant.name,     "forward",   c.dtype == Dtype::bf16 ? "bf16" : "fp16",
            c.head_dim,       c.value_dim, c.tile_query(),
            c.tile_key,       c.threads(), registers,
            c.shared_bytes(), local_bytes};
  }
  for (const forward_fp8::Variant& variant : forward_fp8_variants) {
    if (name != variant.name) continue;
    const forward_fp8::Config& c = variant.config;
    return {variant.name,     "forward",   c.dtype == Dtype::int8 ? "int8" : "e4m3",
            c.head_dim,       c.head_dim,  c.tile_query(),
            c.tile_key,       c.threads(), registers,
            c.shared_bytes(), local_bytes};
  }
  for (const char* helper : helper_kernels)
    if (name == helper) return {helper, "forward", "fp16", 0, 0, 0, 0, copy::threads, registers, 0, local_bytes};
  for (const backward::Variant& variant : backward_variants) {
    if (name != variant.name) continue;
    const backward::Config& c = variant.config;
    return {variant.name,     "backward", c.dtype == Dtype::bf16 ? "bf16" : "fp16",
            c.head_dim,       c.head_dim, c.tile_query,
            c.tile_key(),     c.threads,  registers,
            c.shared_bytes(), local_bytes};
  }
  for (const backward::QueryVariant& variant : backward_query_variants) {
    if (name != variant.name) continue;
    const backward::QueryConfig& c = variant.config;
    return {variant.name,     "backward", c.dtype == Dtype::bf16 ? "bf16" : "fp16",
            c.head_dim,       c.head_dim, c.tile_query(),
            c.tile_key,       c.threads,  registers,
            c.shared_bytes(), local_bytes};
  }
  for (const char* helper : backward_helpers) {
    if (name != helper) continue;
    const bool before = name == backward::prepare_kernel;
    return {helper,     "backward",
            "fp16",     0,
            0,          0,
            0,          before ? backward::PrepareParams::threads : backward::FinishParams::threads,
            registers,  before ? 0 : backward::FinishParams::shared_bytes,
            local_bytes};
  }
  for (const quantize::Kernel& kernel : quantize::kernels)
    if (name == kernel.name)
      return {kernel.name, "quantize", "fp16", 0, 0, 0, 0, kernel.threads, registers, kernel.shared_bytes, local_bytes};
  return {};
}

constexpr size_t kernel_count = std::size(forward_variants) + std::size(forward_fp8_variants) +
                                std::size(helper_kernels) + std::size(backward_variants) +
                                std::size(backward_query_variants) + std::size(backward_helpers) +
                                std::size(quantize::kernels);
/// Defined by the generated source.
extern const std::array<KernelImage, kernel_count> table_of_kernels;

}  // namespace tandem::internal::sm90
