// The list of compiled kernels: its length is pinned, so that none is added without a thought, and each must fit an SM.
#include "backends/sm90/variants.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "backends/sm90/backward/variants.hpp"
#include "backends/sm90/forward/params.hpp"
#include "backends/sm90/forward_fp8/variants.hpp"
#include "backends/sm90/kernels.hpp"

namespace tandem::internal::sm90 {
namespace {

constexpr int shared_limit = 232448;  // bytes a block may take of an SM's 228 KB (CUDA programming guide, 9.0)
constexpr int register_file = 65536;

TEST(Variants, AreFew) {
  EXPECT_EQ(std::size(forward_variants), 12U) << "a new forward kernel says in variants.hpp what it buys";
  EXPECT_LE(std::size(forward_fp8_variants), 24U);
  EXPECT_EQ(std::size(backward_variants) + std::size(backward_query_variants), 14U);
}

TEST(Variants, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (size_t i = 0; i < kernel_count(); ++i) {
    EXPECT_TRUE(names.insert(kernel_info(i).name).second) << kernel_info(i).name;
    EXPECT_NE(find_kernel(kernel_info(i).name), nullptr);
  }
  EXPECT_EQ(find_kernel("forward_bf16_d7"), nullptr);
}

TEST(Variants, NameTheirConfig) {
  for (const forward::Variant& variant : forward_variants) {
    const auto& c = variant.config;
    std::string name = std::string("forward_") + tandem::name(c.dtype) + "_d" + std::to_string(c.head_dim);
    if (c.value_dim != c.head_dim) name += "_v" + std::to_string(c.value_dim);
    EXPECT_EQ(variant.name, name);
  }
}

TEST(Variants, AreAlikeInBothTypes) {
  for (const forward::Variant& variant : forward_variants) {
    if (variant.config.dtype != Dtype::bf16) continue;
    forward::Config twin = variant.config;
    twin.dtype = Dtype::fp16;
    bool found = false;
    for (const forward::Variant& other : forward_variants) found = found || other.config == twin;
    EXPECT_TRUE(found) << variant.name << " has no fp16 twin";
  }
}

TEST(Variants, Of8BitsFitAnSm) {
  for (const forward_fp8::Variant& variant : forward_fp8_variants) {
    SCOPED_TRACE(variant.name);
    const auto& c = variant.config;
    EXPECT_EQ(std::string(variant.name)
                  .find(std::string("forward_") + tandem::name(c.dtype) + "_d" + std::to_string(c.head_dim)),
              0U);
    EXPECT_LE(c.shared_bytes(), shared_limit);
    EXPECT_EQ(c.shared_bytes() % 1024, 0);
    EXPECT_LE(c.consumers, forward::max_consumers) << "Tile has room for no more";
    EXPECT_EQ(c.tile_key % 32, 0) << "weights are wgmma operands of 32 keys";
    EXPECT_LE(128 * (c.registers_producer() + c.consumers * c.registers_consumer()), register_file);
  }
}

TEST(Variants, FitAnSm) {
  for (const forward::Variant& variant : forward_variants) {
    SCOPED_TRACE(variant.name);
    const auto& c = variant.config;
    EXPECT_LE(c.shared_bytes(), shared_limit);
    EXPECT_EQ(c.shared_bytes() % 1024, 0);
    EXPECT_LE(c.consumers, forward::max_consumers) << "Tile has room for no more";
    EXPECT_EQ(c.tile_key % 16, 0) << "weights are wgmma operands of 16 keys";
    EXPECT_LE(c.tile_key, 256) << "a TMA box and a wgmma have at most 256";
    EXPECT_EQ(c.head_dim % 32, 0);
    EXPECT_EQ(c.value_dim % 32, 0);
    // setmaxnreg: what the warpgroups end with fits the register file, and the pool that the block was launched with.
    EXPECT_LE(c.registers_producer() * 128 + c.registers_consumer() * 128 * c.consumers, register_file);
    EXPECT_LE(c.registers_producer() + c.registers_consumer() * c.consumers,
              c.registers_at_launch() * (c.consumers + 1));
    EXPECT_EQ(c.registers_producer() % 8, 0);
    EXPECT_EQ(c.registers_consumer() % 8, 0);
    EXPECT_GE(c.registers_producer(), 24);
    EXPECT_LE(c.registers_consumer(), 255);
    EXPECT_LE(c.threads() * c.registers_at_launch(), register_file);
  }
}

TEST(Variants, OfTheBackwardFitAnSm) {
  for (const backward::Variant& variant : backward_variants) {
    SCOPED_TRACE(variant.name);
    EXPECT_LE(variant.config.shared_bytes(), shared_limit);
  }
}

TEST(KernelInfo, RepeatsTheVariants) {
  for (const forward::Variant& variant : forward_variants) {
    const KernelImage* kernel = find_kernel(variant.name);
    ASSERT_NE(kernel, nullptr) << variant.name;
    const auto& c = variant.config;
    EXPECT_STREQ(kernel->info.pass, "forward");
    EXPECT_EQ(kernel->info.head_dim, c.head_dim);
    EXPECT_EQ(kernel->info.value_dim, c.value_dim);
    EXPECT_EQ(kernel->info.tile_query, c.tile_query());
    EXPECT_EQ(kernel->info.tile_key, c.tile_key);
    EXPECT_EQ(kernel->info.threads, c.threads());
    EXPECT_EQ(kernel->info.shared_bytes, c.shared_bytes());
  }
}

TEST(KernelInfo, NoKernelUsesLocalMemory) {
  size_t compiled = 0;
  for (const KernelImage& kernel : kernel_images()) {
    if (kernel.cubin == nullptr) continue;
    ++compiled;
    EXPECT_EQ(kernel.info.local_bytes, 0) << kernel.info.name;
    EXPECT_GT(kernel.info.registers, 0) << kernel.info.name;
    EXPECT_LE(kernel.info.registers * kernel.info.threads, register_file) << kernel.info.name;
  }
  if (compiled == 0) GTEST_SKIP() << "this build holds no Hopper kernels (no nvcc, or TANDEM_CUDA=OFF)";
}

TEST(KernelInfo, RegistersAreThoseThatTheConfigSays) {
  for (const forward::Variant& variant : forward_variants) {
    const KernelImage* kernel = find_kernel(variant.name);
    if (kernel->cubin == nullptr) GTEST_SKIP() << "this build holds no Hopper kernels (no nvcc, or TANDEM_CUDA=OFF)";
    EXPECT_EQ(kernel->info.registers, variant.config.registers_at_launch()) << variant.name;
  }
}

}  // namespace
}  // namespace tandem::internal::sm90
