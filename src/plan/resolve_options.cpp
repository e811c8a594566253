// See resolve_options.hpp.
#include "plan/resolve_options.hpp"

#include <cmath>

#include "common/status.hpp"
#include "plan/spec.hpp"

namespace tandem::internal {
namespace {

/// Each thread has scratch memory of its own in the workspace, so that a wild count is better refused here.
constexpr int most_threads = 4096;

Status resolve_bound(const char* name, int64_t bound, int32_t& result) {
  if (bound < -1) {
    return error(Code::invalid_argument, name, "%s is %lld; it must be a count of keys, or -1 for unlimited", name,
                 static_cast<long long>(bound));
  }
  result = bound == -1 || bound >= Window::unlimited ? Window::unlimited : static_cast<int32_t>(bound);
  return {};
}

Status resolve_mask(const Mask& mask, Attention& attention) {
  if (Status status = resolve_bound("mask.left", mask.left, attention.window.left); !status.ok()) return status;
  if (Status status = resolve_bound("mask.right", mask.right, attention.window.right); !status.ok()) return status;
  if (mask.causal) {
    if (mask.right > 0) {
      return error(Code::invalid_argument, "mask.right", "mask.right is %lld, but mask.causal means 0; leave it -1",
                   static_cast<long long>(mask.right));
    }
    attention.window.right = 0;
  }
  if (mask.diagonal.has_value()) {
    const int64_t diagonal = *mask.diagonal;
    if (diagonal <= -row_limit || diagonal >= row_limit) {
      return error(Code::invalid_argument, "mask.diagonal", "mask.diagonal is %lld; it must lie within +-%lld",
                   static_cast<long long>(diagonal), static_cast<long long>(row_limit - 1));
    }
    attention.diagonal = static_cast<int32_t>(diagonal);
  }
  return {};
}

}  // namespace

Status resolve_scores(const Problem& problem, Attention& attention) {
  attention.scale = problem.scale.has_value()
                        ? *problem.scale
                        : static_cast<float>(1 / std::sqrt(static_cast<double>(attention.head_dim)));
  if (!std::isfinite(attention.scale)) {
    return error(Code::invalid_argument, "scale", "scale is %g; it must be finite", attention.scale);
  }
  if (!std::isfinite(problem.softcap) || problem.softcap < 0) {
    return error(Code::invalid_argument, "softcap", "softcap is %g; it must be finite, and 0 (none) or more",
                 problem.softcap);
  }
  attention.softcap = problem.softcap;
  attention.sinks = problem.sinks;
  return resolve_mask(problem.mask, attention);
}

Status resolve_options(const Problem& problem, Attention& attention) {
  const Options& options = problem.options;
  if (options.num_splits < 1) {
    return error(Code::invalid_argument, "options.num_splits", "options.num_splits is %d; it must be at least 1",
                 options.num_splits);
  }
  if (options.num_splits != 1) {
    return error(Code::unsupported, "options.num_splits", "options.num_splits is %d; only 1 is served yet",
                 options.num_splits);
  }
  if (options.threads < 0 || options.threads > most_threads) {
    return error(Code::invalid_argument, "options.threads", "options.threads is %d; it must be 0 (all) or 1 to %d",
                 options.threads, most_threads);
  }
  if (options.executor && !options.executor->parallel) {
    return error(Code::invalid_argument, "options.executor", "options.executor lacks its function `parallel`");
  }
  if (options.executor && (options.executor->concurrency < 1 || options.executor->concurrency > most_threads)) {
    return error(Code::invalid_argument, "options.executor",
                 "concurrency of options.executor is %d; it must be 1 to %d", options.executor->concurrency,
                 most_threads);
  }
  attention.options = options;
  return {};
}

Status resolve_backend(const Problem& problem, Attention& attention) {
  const bool on_cuda = attention.device.kind == DeviceKind::cuda;
  switch (problem.options.backend) {
    case Backend::automatic:
      attention.backend = on_cuda ? Backend::sm90 : Backend::cpu;
      break;
    case Backend::cpu:
    case Backend::emulator:
      if (on_cuda) {
        return error(Code::invalid_argument, "options.backend",
                     "backend %s works on CPU memory, but the tensors are on CUDA; use sm90 or automatic",
                     name(problem.options.backend));
      }
      attention.backend = problem.options.backend;
      break;
    case Backend::sm90:
      if (!on_cuda) {
        return error(Code::invalid_argument, "options.backend",
                     "backend sm90 works on CUDA memory, but the tensors are on the CPU; use cpu or automatic");
      }
      attention.backend = Backend::sm90;
      break;
    default:
      return error(Code::invalid_argument, "options.backend", "backend %d isn't one of tandem::Backend",
                   static_cast<int>(problem.options.backend));
  }
  if (attention.dtype == Dtype::fp32 && attention.backend != Backend::cpu) {
    return error(Code::unsupported, "query",
                 "query has dtype fp32, which the %s backend doesn't serve; use bf16 or fp16", name(attention.backend));
  }
  attention.options.backend = attention.backend;
  return {};
}

}  // namespace tandem::internal
