// The table of compiled kernels, made by the build: what each is, and its cubin.
#pragma once

#include <span>

#include "tandem/tandem.hpp"

namespace tandem::internal::sm90 {

struct KernelImage {
  KernelInfo info;
  const void* cubin;  // null where the kernels were not compiled
};

/// All kernels of the library, in the order of variants.hpp.
std::span<const KernelImage> kernel_images() noexcept;

/// Null if there is none of that name.
const KernelImage* find_kernel(const char* name) noexcept;

}  // namespace tandem::internal::sm90
