// Threads live for one run: starting some costs tens of microseconds, and nothing global is left behind.
#include "backends/cpu/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace tandem::internal::cpu {

int workers(const Options& options) {
  if (options.executor != nullptr) return std::max(1, options.executor->concurrency);
  if (options.threads > 0) return options.threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void parallel(const Options& options, int count, int64_t units, const std::function<void(int64_t, int)>& work) {
  std::atomic<int64_t> next{0};
  const auto drain = [&](int64_t worker) {
    for (int64_t unit = next++; unit < units; unit = next++) work(unit, static_cast<int>(worker));
  };
  if (count > units) count = static_cast<int>(std::max<int64_t>(units, 1));
  if (options.executor != nullptr) {
    options.executor->parallel(count, drain);
    return;
  }
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int worker = 1; worker < count; ++worker) {
    try {
      threads.emplace_back(drain, worker);
    } catch (const std::system_error&) {
      break;  // the machine gives no more threads: those that run do the work
    }
  }
  drain(0);
}

}  // namespace tandem::internal::cpu
