// Tensors that lie in one allocation: the emulator's checks must know whose element an address is, not only in whose
// range of bytes it lies.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "common/dtypes.hpp"
#include "oracle/random.hpp"
#include "tandem/tandem.hpp"

namespace tandem {
namespace {

constexpr int64_t batch = 2, rows = 150, heads = 2, dim = 64;
constexpr size_t parts = 4, elements = batch * rows * heads * dim;

/// Where query (part 0), key, value and out lie: each on its own, or as slices of one array (batch, rows, 4, heads,
/// dim), from so many elements behind an aligned address on.
struct Placing {
  bool interleaved;
  size_t shift;

  size_t begin(size_t part) const { return shift + part * (interleaved ? heads * dim : elements); }
  size_t at(size_t part, size_t element) const {
    constexpr size_t row = heads * dim;
    return begin(part) + (interleaved ? element / row * row * parts + element % row : element);
  }
  TensorSpec spec() const {
    TensorSpec spec = contiguous(Dtype::bf16, cpu(), {batch, rows, heads, dim});
    if (interleaved) {
      spec.stride[0] *= parts;
      spec.stride[1] *= parts;
    }
    if (shift != 0) spec.alignment = 2;
    return spec;
  }
};

struct Free {
  void operator()(void* data) const { std::free(data); }
};
template <class Element>
std::unique_ptr<Element[], Free> allocate(size_t count) {
  return std::unique_ptr<Element[], Free>(
      static_cast<Element*>(std::aligned_alloc(256, (count * sizeof(Element) + 511) / 256 * 256)));
}

/// The output, empty where the run failed.
std::vector<uint16_t> run(const Placing& placing) {
  const TensorSpec spec = placing.spec();
  Problem problem;
  problem.mask.causal = true;
  problem.options.backend = Backend::emulator;
  problem.query = problem.key = problem.value = problem.out = spec;
  const auto data = allocate<uint16_t>(parts * elements + placing.shift);
  for (size_t part = 0; part < parts; ++part)
    for (size_t i = 0; i < elements; ++i) data[placing.at(part, i)] = to_bf16(oracle::normal(part, i)).bits;
  const auto planned = plan(Pass::forward, problem);
  EXPECT_TRUE(planned.ok()) << planned.status().message;
  if (!planned.ok()) return {};
  const auto workspace = allocate<uint8_t>(planned->workspace_bytes());
  Arguments arguments;
  arguments.query = {spec, &data[placing.begin(0)]};
  arguments.key = {spec, &data[placing.begin(1)]};
  arguments.value = {spec, &data[placing.begin(2)]};
  arguments.out = {spec, &data[placing.begin(3)]};
  const Status status = planned->run(arguments, workspace.get(), planned->workspace_bytes());
  EXPECT_TRUE(status.ok()) << status.message;
  std::vector<uint16_t> result;
  for (size_t i = 0; status.ok() && i < elements; ++i) result.push_back(data[placing.at(3, i)]);
  return result;
}

TEST(EmulatorTensors, MayInterleaveInOneArray) { EXPECT_EQ(run({true, 0}), run({false, 0})); }
/// TMA can't take these: copies of them in the workspace are read and written.
TEST(EmulatorTensors, MayLieAtOddAddresses) {
  EXPECT_EQ(run({false, 1}), run({false, 0}));
  EXPECT_EQ(run({true, 1}), run({false, 0}));
}

}  // namespace
}  // namespace tandem
