// Conformance kernels: wgmma of every element type, width, major and swizzle. The operands' bytes in shared memory are
// given as they lie, so that what is tested is how the descriptor reads them.
#include "backends/sm90/ptx/ptx.hpp"
#include "params.hpp"

namespace tandem::conformance {

enum class Kind { bf16, fp16, e4m3, int8 };
template <Kind kind>
struct ElementOf;
template <>
struct ElementOf<Kind::bf16> {
  using type = bf16;
  using accumulator = float;
};
template <>
struct ElementOf<Kind::fp16> {
  using type = fp16;
  using accumulator = float;
};
template <>
struct ElementOf<Kind::e4m3> {
  using type = tandem::e4m3;
  using accumulator = float;
};
template <>
struct ElementOf<Kind::int8> {
  using type = int8_t;
  using accumulator = int;
};

struct Mode {
  Kind kind;
  int width;
  ptx::Major a, b;
  ptx::Swizzle swizzle;
};

constexpr int operand_bytes = 32768;
struct alignas(1024) OperandShared {
  uint8_t a[operand_bytes], b[operand_bytes];
  static constexpr ptx::Part parts[] = {{"a", 0, operand_bytes}, {"b", operand_bytes, operand_bytes}};
};

/// Arguments: leading and stride offsets of A, of B; bytes to advance A and B by a step; steps; the first step's
/// `accumulate`. Input: the bytes of A, of B, a fragment of A for each thread and step, and initial accumulators.
template <Mode mode>
TANDEM_DEVICE void wgmma_mode(const Params& p) {
  using Element = typename ElementOf<mode.kind>::type;
  using Accumulator = typename ElementOf<mode.kind>::accumulator;
  constexpr int count = mode.width / 2;
  OperandShared& shared = ptx::dynamic_shared<OperandShared>();
  const int thread = ptx::thread_index();
  uint32_t* words = reinterpret_cast<uint32_t*>(shared.a);
  const uint32_t* in = reinterpret_cast<const uint32_t*>(p.input);
  for (int i = thread; i < 2 * operand_bytes / 4; i += 128) words[i] = in[i];
  ptx::fence_proxy_async();
  ptx::sync_block();
  const int32_t* argument = p.argument;
  const int steps = argument[6];
  const bool accumulate = argument[7] != 0;
  const ptx::Descriptor a = ptx::matrix<mode.swizzle>(shared.a, argument[0], argument[1]);
  const ptx::Descriptor b = ptx::matrix<mode.swizzle>(shared.b, argument[2], argument[3]);
  const uint32_t* fragments = in + 2 * operand_bytes / 4;
  const Accumulator* initial = reinterpret_cast<const Accumulator*>(fragments + 4 * 128 * 4) + thread * count;
  Accumulator* out = reinterpret_cast<Accumulator*>(p.output) + thread * count;

  Accumulator d[count];
  for (int i = 0; i < count; ++i) d[i] = initial[i];
  ptx::wgmma_fence(d);
  for (int k = 0; k < steps; ++k)
    ptx::wgmma<Element, mode.a, mode.b>(d, ptx::advance(a, k * argument[4]), ptx::advance(b, k * argument[5]),
                                        k != 0 || accumulate);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  for (int i = 0; i < count; ++i) out[i] = d[i];

  uint32_t fragment[4];
  for (int i = 0; i < count; ++i) d[i] = initial[i];
  for (int k = 0; k < steps; ++k) {
    for (int i = 0; i < 4; ++i) fragment[i] = fragments[(k * 128 + thread) * 4 + i];
    ptx::wgmma_fence(d, fragment);
    ptx::wgmma<Element, mode.b>(d, fragment, ptx::advance(b, k * argument[5]), k != 0 || accumulate);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d, fragment);
  }
  for (int i = 0; i < count; ++i) out[128 * count + i] = d[i];
}

}  // namespace tandem::conformance

#define WGMMA_MODE(name, element, width, a_major, b_major, swizzle_bytes)                                   \
  constexpr tandem::conformance::Mode name##_mode{tandem::conformance::Kind::element, width,                \
                                                  tandem::ptx::Major::a_major, tandem::ptx::Major::b_major, \
                                                  tandem::ptx::Swizzle::bytes##swizzle_bytes};              \
  TANDEM_KERNEL(wgmma_##name, tandem::conformance::Params, 128, tandem::conformance::OperandShared,         \
                tandem::conformance::wgmma_mode<name##_mode>)
#include "wgmma_modes.inc"
