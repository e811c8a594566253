// What 8-bit attention adds to a problem's tensors: scales, value means, packed values. Shared by the forward pass,
// which reads them, and the quantiser, which writes them.
#pragma once

#include "plan/attention.hpp"

namespace tandem::internal {

/// The scaled tensors, with the names that messages give to what belongs to them.
struct Scaled {
  const char* tensor;
  const char* scale;
  const char* granularity;
  const char* rows;
  TensorSpec Problem::*given;
  TensorSpec Attention::*resolved;
  Granularity Quantization::*granularity_of;
  int Quantization::*rows_of;
  bool of_query;
};
constexpr Scaled scaled_query{"query",
                              "query_scale",
                              "quantization.query",
                              "quantization.query_rows",
                              &Problem::query_scale,
                              &Attention::query_scale,
                              &Quantization::query,
                              &Quantization::query_rows,
                              true};
constexpr Scaled scaled_key{"key",
                            "key_scale",
                            "quantization.key",
                            "quantization.key_rows",
                            &Problem::key_scale,
                            &Attention::key_scale,
                            &Quantization::key,
                            &Quantization::key_rows,
                            false};
constexpr Scaled scaled_value{"value",
                              "value_scale",
                              "quantization.value",
                              "quantization.value_rows",
                              &Problem::value_scale,
                              &Attention::value_scale,
                              &Quantization::value,
                              &Quantization::value_rows,
                              false};

constexpr bool eight_bits(Dtype dtype) { return dtype == Dtype::e4m3 || dtype == Dtype::int8; }

/// The contiguous spec of a tensor's scales, as tandem::Granularity states it. Block scales need the rows of a block.
TensorSpec scale_spec(const Attention& attention, const Scaled& scaled);
/// The contiguous spec of a packed value, as tandem::ValueLayout states it.
TensorSpec packed_value_spec(const Attention& attention);

/// One tensor's granularity, rows and given scales; absent scales become contiguous. The shape of block scales whose
/// rows are left to the plan waits for choose_blocks().
Status resolve_scale(const Problem& problem, Attention& attention, const Scaled& scaled);
Status check_value_layout(const Problem& problem);
/// value_mean: needed by `quantization.value_mean`, refused without.
Status resolve_value_mean(const Problem& problem, Attention& attention);
/// The 8-bit forward's own step; for 16 bits it refuses what only 8 bits take.
Status resolve_8bit_forward(const Problem& problem, Attention& attention);
/// Refuses the fields of a problem that only the quantiser takes.
Status refuse_quantizing(const Problem& problem, const char* pass);

/// What a backend asks of the rows of a block: a tile of its kernel must see one scale, so that rows are a multiple of
/// `unit`; where the problem leaves them to the plan they become `choice`.
struct BlockRows {
  int unit, choice;
};
/// To be called by a backend on its copy of an 8-bit forward's Attention, once it has chosen its kernel: afterwards
/// rows and scales' specs are complete, and Executable::quantization() tells them.
Status choose_blocks(Attention& attention, BlockRows query, BlockRows key, BlockRows value);

}  // namespace tandem::internal
