// Look-ups in the table of compiled kernels, which the build generates.
#include "backends/sm90/kernels.hpp"

#include <string_view>

#include "backends/backends.hpp"
#include "backends/sm90/kernel_table.hpp"

namespace tandem::internal::sm90 {

std::span<const KernelImage> kernel_images() noexcept { return table_of_kernels; }

const KernelImage* find_kernel(const char* name) noexcept {
  for (const KernelImage& image : kernel_images())
    if (std::string_view(image.info.name) == name) return &image;
  return nullptr;
}

std::span<const KernelInfo> kernels() noexcept {
  if (table_of_kernels.front().cubin == nullptr) return {};  // built with TANDEM_CUDA off: names, but no code
  static const auto infos = [] {
    std::array<KernelInfo, kernel_count> all{};
    for (size_t i = 0; i < kernel_count; ++i) all[i] = table_of_kernels[i].info;
    return all;
  }();
  return infos;
}

}  // namespace tandem::internal::sm90
