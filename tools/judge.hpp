// A job's result against the float64 oracle.
#pragma once

#include <cstdint>

#include "oracle/oracle.hpp"
#include "tools/job.hpp"

namespace tandem::tools {

/// Judges what the pass wrote: forward on at most `rows` rows (all of them if it is negative), backward on everything.
oracle::Verdict judge(const Job& job, int64_t rows, uint64_t seed = 1);

/// How many rows can be judged within about `operations` multiplications of float64.
int64_t affordable_rows(const Job& job, double operations);

}  // namespace tandem::tools
