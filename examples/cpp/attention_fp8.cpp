// 8-bit attention on the CPU with Tandem's C++ interface: the forward plan says how tensors must be quantised, the
// quantiser makes them from bf16, and attention runs on them. On a GPU the same calls take CUDA tensors and a stream.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <random>
#include <vector>

#include "tandem/tandem.hpp"

namespace {

using tandem::Dtype;

int fail(const char* what, const tandem::Status& status) {
  std::fprintf(stderr, "%s: %s (%s)\n", what, status.message, status.argument);
  return 1;
}

uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float from_bf16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

std::vector<uint16_t> random_normal(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) value = to_bf16(normal(generator));
  return values;
}

/// A block of 256 bytes: memory made of these is aligned as workspaces must be.
struct alignas(256) Block {
  char bytes[256];
};

/// A tensor with memory of its own.
struct Tensor {
  Tensor(Dtype dtype, std::initializer_list<int64_t> size)
      : view{tandem::contiguous(dtype, tandem::cpu(), size), nullptr} {
    size_t bytes = dtype == Dtype::e4m3 ? 1 : (dtype == Dtype::bf16 ? 2 : 4);
    for (const int64_t s : size) bytes *= static_cast<size_t>(s);
    memory.resize(bytes / sizeof(Block) + 1);
    view.data = memory.data();
  }
  std::vector<Block> memory;
  tandem::TensorView view;
};

tandem::Status run(const tandem::Plan& plan, const tandem::Arguments& arguments) {
  std::vector<Block> workspace(plan.workspace_bytes() / sizeof(Block) + 1);
  return plan.run(arguments, workspace.data(), plan.workspace_bytes());
}

}  // namespace

int main() {
  const int64_t batch = 1, seqlen = 512, heads = 4, head_dim = 64, groups = seqlen / 16;
  auto query = random_normal(batch * seqlen * heads * head_dim, 1);
  auto key = random_normal(batch * seqlen * heads * head_dim, 2);
  auto value = random_normal(batch * seqlen * heads * head_dim, 3);
  Tensor query8(Dtype::e4m3, {batch, seqlen, heads, head_dim}), key8(Dtype::e4m3, {batch, seqlen, heads, head_dim});
  Tensor value8(Dtype::e4m3, {batch, heads, groups, head_dim, 16});  // as the tensor cores read it
  Tensor out(Dtype::bf16, {batch, seqlen, heads, head_dim});

  // The forward plan comes first: it chooses the rows that share a scale.
  tandem::Problem attend;
  attend.query = query8.view.spec;
  attend.key = key8.view.spec;
  attend.value = value8.view.spec;
  attend.mask.causal = true;
  attend.quantization.hadamard = true;
  auto forward = tandem::plan(tandem::Pass::forward, attend);
  if (!forward) return fail("forward plan", forward.status());
  std::printf("%s\n", forward->describe().c_str());

  tandem::Problem quantise;
  quantise.query = quantise.key = quantise.value =
      tandem::contiguous(Dtype::bf16, tandem::cpu(), {batch, seqlen, heads, head_dim});
  quantise.quantized_value = value8.view.spec;  // absent query and key are e4m3 of the same shape
  quantise.quantization = forward->quantization();
  auto quantiser = tandem::plan(tandem::Pass::quantize, quantise);
  if (!quantiser) return fail("quantiser plan", quantiser.status());

  const auto blocks = [&](int rows) { return (seqlen + rows - 1) / rows; };
  Tensor query_scale(Dtype::fp32, {batch, heads, blocks(quantise.quantization.query_rows)});
  Tensor key_scale(Dtype::fp32, {batch, heads, blocks(quantise.quantization.key_rows)});
  Tensor value_scale(Dtype::fp32, {batch, heads, blocks(quantise.quantization.value_rows)});

  tandem::Arguments arguments;
  arguments.query = {quantise.query, query.data()};
  arguments.key = {quantise.key, key.data()};
  arguments.value = {quantise.value, value.data()};
  arguments.quantized_query = query8.view;
  arguments.quantized_key = key8.view;
  arguments.quantized_value = value8.view;
  arguments.query_scale = query_scale.view;
  arguments.key_scale = key_scale.view;
  arguments.value_scale = value_scale.view;
  if (const auto status = run(*quantiser, arguments); !status.ok()) return fail("quantise", status);

  arguments = {};
  arguments.query = query8.view;
  arguments.key = key8.view;
  arguments.value = value8.view;
  arguments.query_scale = query_scale.view;
  arguments.key_scale = key_scale.view;
  arguments.value_scale = value_scale.view;
  arguments.out = out.view;
  if (const auto status = run(*forward, arguments); !status.ok()) return fail("attend", status);

  // The first query sees the first key alone, so its output is that key's value, up to two roundings to 8 bits.
  const float first = from_bf16(static_cast<const uint16_t*>(out.view.data)[0]), exact = from_bf16(value[0]);
  std::printf("out[0] = %.4f, value[0] = %.4f\n", first, exact);
  return std::abs(first - exact) <= 0.15F * std::abs(exact) + 0.01F ? 0 : 1;
}
