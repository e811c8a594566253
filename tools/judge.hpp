// A job's result against the float64 oracle.
#pragma once

#include <cstdint>

#include "oracle/oracle.hpp"
#include "tools/job.hpp"

namespace tandem::tools {

/// Judges what the pass wrote: forward on at most `rows` rows (all of them if it is negative), backward on everything.
oracle::Verdict judge(const Job& job, int64_t rows, uint64_t seed = 1);

/// A job of 16 or 32 bits as the oracle sees it; and one of its tensors.
oracle::Problem oracle_problem(const Job& job);
oracle::Tensor oracle_view(const Tensor& tensor);

/// How many rows can be judged within about `operations` multiplications of float64.
int64_t affordable_rows(const Job& job, double operations);

}  // namespace tandem::tools
