// Options that commands share: random inputs, lengths, the mask.
#pragma once

#include <map>
#include <string>

#include "tools/commands.hpp"
#include "tools/inputs.hpp"
#include "tools/io/list.hpp"

namespace tandem::tools {

inline Dtype dtype_of(const std::string& name) {
  static const std::map<std::string, Dtype> dtypes = {
      {"fp32", Dtype::fp32}, {"fp16", Dtype::fp16}, {"bf16", Dtype::bf16}};
  return dtypes.at(name);
}

inline void set_window(Mask& mask, const std::string& window) {
  const auto sides = parse_integers(window, "--window", 2);
  mask.left = sides[0];
  mask.right = sides[1];
}

/// Random tensors, their dtype and their lengths.
inline void add_random_options(CLI::App& command, InputOptions& inputs, std::string& dtype, const char* group) {
  command.add_option("--random", inputs.random, "Random tensors of batch, seqlen, heads, head_dim")
      ->type_name("B,S,H,D")
      ->group(group);
  command.add_option("--key-heads", inputs.key_heads, "With --random: heads of key and value")->group(group);
  command.add_option("--key-length", inputs.key_length, "With --random: seqlen of key and value")->group(group);
  command.add_option("--dtype", dtype, "Convert the tensors to fp32, fp16 or bf16 (of --random: bf16)")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}))
      ->type_name("DTYPE")
      ->group(group);
  command.add_option("--cu-seqlens-q", inputs.cu_query, "Cumulative query lengths: 0,10,32 or a .npy file")
      ->type_name("LIST")
      ->group(group);
  command.add_option("--cu-seqlens-k", inputs.cu_key, "Cumulative key lengths")->type_name("LIST")->group(group);
}

inline void add_mask_options(CLI::App& command, Mask& mask, std::string& window, const char* group) {
  command.add_flag("--causal", mask.causal, "Causal mask, aligned to the bottom right")->group(group);
  command.add_option("--window", window, "Sliding window: keys to the left and right, -1 is unlimited")
      ->type_name("LEFT,RIGHT")
      ->group(group);
}

}  // namespace tandem::tools
