// The kernels that the emulator's library holds: all variants, whether or not this build compiled them for a GPU.
#pragma once

#include <string_view>
#include <vector>

#include "tandem/tandem.hpp"

namespace tandem {

template <class Variants>
std::vector<KernelInfo> emulated_kernels(const Variants& variants) {
  std::vector<KernelInfo> list;
  for (const auto& variant : variants) {
    KernelInfo info{};
    info.name = variant.name;
    info.dtype = name(variant.config.dtype);
    info.head_dim = info.value_dim = variant.config.head_dim;
    if constexpr (requires { variant.config.value_dim; }) info.value_dim = variant.config.value_dim;
    list.push_back(info);
  }
  return list;
}

}  // namespace tandem
