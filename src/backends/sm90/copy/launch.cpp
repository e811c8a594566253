// Launches of the copy kernel.
#include "backends/sm90/copy/launch.hpp"

#include <algorithm>

#include "backends/sm90/copy/params.hpp"
#include "plan/spec.hpp"

namespace tandem::internal::sm90::copy {

Placed in_workspace(const TensorSpec& spec, void* data) noexcept {
  return {row_major(spec.dtype, spec.device, spec.size.data(), spec.rank), data};
}

Status launch(const Device& device, KernelHandle kernel, const Placed& from, const Placed& to, const Side& side,
              void* stream) noexcept {
  const Strides f = strides(from.spec), t = strides(to.spec);
  Params params{static_cast<const uint16_t*>(from.data),
                static_cast<uint16_t*>(to.data),
                elements(from.spec),
                side.rows,
                side.heads,
                from.spec.size[static_cast<size_t>(from.spec.rank - 1)],
                {f.batch, f.row, f.head},
                {t.batch, t.row, t.head}};
  if (params.elements == 0) return {};
  const int64_t blocks = (params.elements + threads - 1) / threads;
  const int64_t most = 16 * device.traits().multiprocessors;
  return device.launch({.kernel = kernel,
                        .grid = static_cast<int>(std::min(blocks, most)),
                        .threads = threads,
                        .parameters = &params,
                        .parameter_bytes = sizeof params,
                        .stream = stream});
}

}  // namespace tandem::internal::sm90::copy
