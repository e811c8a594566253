// Conformance kernels: tensor and bulk copies. Loads dump shared memory as it is, stores and reductions leave their
// mark in the output buffer.
#include "backends/sm90/ptx/ptx.hpp"
#include "params.hpp"

namespace tandem::conformance {

struct alignas(1024) CopyShared {
  uint8_t data[32768];
  ptx::Barrier full;
  static constexpr ptx::Part parts[] = {{"data", 0, 32768}, {"full", 32768, 8}};
};

/// Arguments of the tensor copies: five coordinates, then the box's bytes, then the offset in shared memory.
template <class Issue>
TANDEM_DEVICE void load(const Params& p, Issue issue) {
  CopyShared& shared = ptx::dynamic_shared<CopyShared>();
  const int thread = ptx::thread_index(), bytes = p.argument[5], offset = p.argument[6];
  if (thread == 0) {
    ptx::init(shared.full, 1);
    ptx::fence_barrier_init();
  }
  ptx::sync_block();
  if (thread == 0) {
    ptx::arrive_expect(shared.full, bytes);
    issue(shared.data + offset, shared.full);
  }
  ptx::wait(shared.full, 0);
  const uint32_t* words = reinterpret_cast<const uint32_t*>(shared.data + offset);
  for (int i = thread; i < bytes / 4; i += ptx::block_threads()) reinterpret_cast<uint32_t*>(p.output)[i] = words[i];
}

TANDEM_DEVICE void tma_load_4d(const Params& p) {
  const int32_t* c = p.argument;
  load(p, [&](void* to, ptx::Barrier& full) { ptx::tma_load(to, p.map, full, c[0], c[1], c[2], c[3]); });
}
TANDEM_DEVICE void tma_load_5d(const Params& p) {
  const int32_t* c = p.argument;
  load(p, [&](void* to, ptx::Barrier& full) { ptx::tma_load(to, p.map, full, c[0], c[1], c[2], c[3], c[4]); });
}
TANDEM_DEVICE void bulk_load(const Params& p) {
  load(p, [&](void* to, ptx::Barrier& full) { ptx::bulk_load(to, p.input + p.argument[0], p.argument[5], full); });
}

template <class Issue>
TANDEM_DEVICE void store(const Params& p, Issue issue) {
  CopyShared& shared = ptx::dynamic_shared<CopyShared>();
  const int thread = ptx::thread_index(), bytes = p.argument[5], offset = p.argument[6];
  uint32_t* words = reinterpret_cast<uint32_t*>(shared.data + offset);
  for (int i = thread; i < bytes / 4; i += ptx::block_threads())
    words[i] = reinterpret_cast<const uint32_t*>(p.input)[i];
  ptx::fence_proxy_async();
  ptx::sync_block();
  if (thread == 0) {
    issue(shared.data + offset);
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();
    ptx::bulk_wait<0>();
  }
}

TANDEM_DEVICE void tma_store_5d(const Params& p) {
  const int32_t* c = p.argument;
  store(p, [&](const void* from) { ptx::tma_store(p.map, from, c[0], c[1], c[2], c[3], c[4]); });
}
TANDEM_DEVICE void tma_reduce_add_5d(const Params& p) {
  const int32_t* c = p.argument;
  store(p, [&](const void* from) { ptx::tma_reduce_add(p.map, from, c[0], c[1], c[2], c[3], c[4]); });
}
TANDEM_DEVICE void bulk_store(const Params& p) {
  store(p, [&](const void* from) { ptx::bulk_store(p.output + p.argument[0], from, p.argument[5]); });
}
TANDEM_DEVICE void bulk_reduce_add(const Params& p) {
  store(p, [&](const void* from) {
    ptx::bulk_reduce_add(reinterpret_cast<float*>(p.output + p.argument[0]), static_cast<const float*>(from),
                         p.argument[5]);
  });
}

}  // namespace tandem::conformance

TANDEM_KERNEL(tma_load_4d, tandem::conformance::Params, 128, tandem::conformance::CopyShared,
              tandem::conformance::tma_load_4d)
TANDEM_KERNEL(tma_load_5d, tandem::conformance::Params, 128, tandem::conformance::CopyShared,
              tandem::conformance::tma_load_5d)
TANDEM_KERNEL(bulk_load, tandem::conformance::Params, 128, tandem::conformance::CopyShared,
              tandem::conformance::bulk_load)
TANDEM_KERNEL(tma_store_5d, tandem::conformance::Params, 128, tandem::conformance::CopyShared,
              tandem::conformance::tma_store_5d)
TANDEM_KERNEL(tma_reduce_add_5d, tandem::conformance::Params, 128, tandem::conformance::CopyShared,
              tandem::conformance::tma_reduce_add_5d)
TANDEM_KERNEL(bulk_store, tandem::conformance::Params, 128, tandem::conformance::CopyShared,
              tandem::conformance::bulk_store)
TANDEM_KERNEL(bulk_reduce_add, tandem::conformance::Params, 128, tandem::conformance::CopyShared,
              tandem::conformance::bulk_reduce_add)
