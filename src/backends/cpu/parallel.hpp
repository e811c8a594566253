// Running independent units of work on several threads, the library's or the caller's own.
#pragma once

#include <cstdint>
#include <functional>

#include "tandem/tandem.hpp"

namespace tandem::internal::cpu {

/// How many workers a plan with these options uses at most.
int workers(const Options& options);

/// Calls work(unit, worker) for every unit from 0 to units - 1. A worker (0 to count - 1) does one unit at a time, so
/// its number can pick its scratch. Units are handed out in order; which worker gets which is left open.
void parallel(const Options& options, int count, int64_t units, const std::function<void(int64_t, int)>& work);

}  // namespace tandem::internal::cpu
