// 8-bit jobs: made of 16-bit ones, quantised by the library or by plain host code of the tools' own, and turned back
// into numbers for the oracle.
#pragma once

#include <string>
#include <vector>

#include "tools/job.hpp"

namespace tandem::tools {

bool eight_bits(Dtype dtype);

/// How a 16-bit job becomes an 8-bit one.
struct Quantising {
  Quantization quantization;
  Dtype query_key = Dtype::e4m3;  // or int8
  Dtype out = Dtype::bf16;        // or fp16, or e4m3 with this scale:
  float out_scale = 1;
};

/// "q block k head v tensor packed mean int8 -> bf16"
std::string describe(const Quantising& how);

/// The 8-bit forward of a 16-bit forward job, with its tensors all poison and without scales, whose shape the plan
/// decides: plan it, then call allocate_scales() with the plan's quantization, then quantise in one of two ways.
Job quantised_job(const Job& source, const Quantising& how, Layout layout = Layout::row_major);
void allocate_scales(const Job& source, const Quantization& planned, Job& job, Layout layout = Layout::row_major);

/// By plain code on the host. Rows beyond used lengths stay poison, and so do scales that no row has.
void quantise_on_host(const Job& source, Job& job);

/// The library's quantiser as a job: it reads `source` and writes tensors like those of `job`.
Job quantise_job(const Job& source, const Job& job);
/// Outputs, all poison, for the tensors that a quantise job has; its quantization says all but the dtype.
void allocate_quantised(Job& quantise, Dtype query_key);
/// Hands what a quantise job wrote to the forward job.
void take_quantised(const Job& quantise, Job& job);

/// All of that by the library on one backend: the 8-bit forward of `source`, quantised and ready to run.
Job quantise(const Job& source, const Quantising& how, Backend backend, Memory& memory);

/// The numbers that an 8-bit job's tensors stand for, (batch, row, head, column) or (row, head, column); NaN in rows
/// that no sequence uses. Value scales are one for each key (no columns).
struct Dequantised {
  std::vector<double> query, key, value, value_scale, out;
  double out_scale = 1;
};
Dequantised dequantised(const Job& job);

}  // namespace tandem::tools
