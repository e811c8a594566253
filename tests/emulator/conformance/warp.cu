// Conformance kernels: votes, shuffles, matrix loads and stores, conversions and special functions.
#include "backends/sm90/ptx/ptx.hpp"
#include "params.hpp"

namespace tandem::conformance {

struct MatrixShared {
  alignas(128) uint8_t data[512];
  static constexpr ptx::Part parts[] = {{"data", 0, 512}};
};

TANDEM_DEVICE void warp_collectives(const Params& p) {
  const int lane = ptx::thread_index();
  int32_t* out = reinterpret_cast<int32_t*>(p.output);
  const int32_t x = reinterpret_cast<const int32_t*>(p.input)[lane];
  int row = 0;
  const auto put = [&](int32_t value) { out[row++ * 32 + lane] = value; };
  for (int mask = 1; mask < 32; mask *= 2) put(ptx::shuffle_xor(x, mask));
  for (int distance = 1; distance < 32; distance *= 2) put(ptx::shuffle_up(x, distance));
  put(ptx::shuffle(x, 7));
  put(ptx::shuffle(x, (lane * 5 + 3) % 32));
  put(static_cast<int32_t>(ptx::shuffle_xor(static_cast<float>(x % 1000), 9)));
  put(static_cast<int32_t>(ptx::shuffle(static_cast<float>(x % 1000), 31 - lane)));
  put(static_cast<int32_t>(ptx::ballot((x & 4) != 0)));
  put(ptx::any(lane == 40));
  put(ptx::any(lane == 31));
  put(ptx::first_set(0xa0u << (lane % 8)));
  put(static_cast<int32_t>(ptx::uniform(uint32_t{0xfedcba98})));
  put(ptx::uniform(-5));
}

/// Stores a register pattern in both forms, and loads a byte pattern in both.
TANDEM_DEVICE void matrices(const Params& p) {
  MatrixShared& shared = ptx::dynamic_shared<MatrixShared>();
  const int lane = ptx::thread_index();
  uint32_t* out = reinterpret_cast<uint32_t*>(p.output);
  const uint32_t* in = reinterpret_cast<const uint32_t*>(p.input);
  // Rows in an order of their own, so that addresses matter.
  uint8_t* row = shared.data + 16 * ((lane * 11 + 5) % 32);
  const uint32_t* shared_words = reinterpret_cast<const uint32_t*>(shared.data);
  ptx::store_matrices(row, in[lane], in[32 + lane], in[64 + lane], in[96 + lane]);
  ptx::sync_warp();
  for (int i = 0; i < 4; ++i) out[i * 32 + lane] = shared_words[i * 32 + lane];
  ptx::sync_warp();
  ptx::store_matrices_transposed(row, in[lane], in[32 + lane], in[64 + lane], in[96 + lane]);
  ptx::sync_warp();
  for (int i = 0; i < 4; ++i) out[128 + i * 32 + lane] = shared_words[i * 32 + lane];
  uint32_t a, b, c, d;
  ptx::load_matrices(row, a, b, c, d);
  out[256 + lane] = a, out[288 + lane] = b, out[320 + lane] = c, out[352 + lane] = d;
  ptx::load_matrices_transposed(row, a, b, c, d);
  out[384 + lane] = a, out[416 + lane] = b, out[448 + lane] = c, out[480 + lane] = d;
}

/// Exact arithmetic of float32 inputs, special values among them.
TANDEM_DEVICE void conversions(const Params& p) {
  const float* in = reinterpret_cast<const float*>(p.input);
  uint32_t* out = reinterpret_cast<uint32_t*>(p.output);
  float* out_float = reinterpret_cast<float*>(p.output);
  const int n = p.argument[0];
  for (int i = ptx::thread_index(); i < n; i += ptx::block_threads()) {
    const float x = in[i], y = in[(i + 17) % n], z = in[(i + 40) % n];
    out[i] = ptx::pack<bf16>(x, y);
    out[n + i] = ptx::pack<fp16>(x, y);
    out_float[2 * n + i] = ptx::maximum(x, y);
    out_float[3 * n + i] = ptx::minimum(x, y);
    out_float[4 * n + i] = ptx::multiply_add(x, y, z);
  }
}

/// Approximate functions: compared within two units of the last place.
TANDEM_DEVICE void special_functions(const Params& p) {
  const float* in = reinterpret_cast<const float*>(p.input);
  float* out = reinterpret_cast<float*>(p.output);
  const int n = p.argument[0];
  for (int i = ptx::thread_index(); i < n; i += ptx::block_threads()) {
    const float x = in[i];
    out[i] = ptx::exp2(x);
    out[n + i] = ptx::log2(x);
    out[2 * n + i] = ptx::reciprocal(x);
  }
}

}  // namespace tandem::conformance

TANDEM_KERNEL(warp_collectives, tandem::conformance::Params, 32, tandem::conformance::MatrixShared,
              tandem::conformance::warp_collectives)
TANDEM_KERNEL(matrices, tandem::conformance::Params, 32, tandem::conformance::MatrixShared,
              tandem::conformance::matrices)
TANDEM_KERNEL(conversions, tandem::conformance::Params, 128, tandem::conformance::MatrixShared,
              tandem::conformance::conversions)
TANDEM_KERNEL(special_functions, tandem::conformance::Params, 128, tandem::conformance::MatrixShared,
              tandem::conformance::special_functions)
