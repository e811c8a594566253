// Small kernels with one fault each: copies and wgmma.
#include "backends/sm90/ptx/ptx.hpp"
#include "params.hpp"

namespace tandem::faults {

using conformance::Params;

struct alignas(1024) Tiles {
  uint8_t a[8192], b[8192];
  ptx::Barrier full;
  static constexpr ptx::Part parts[] = {{"a", 0, 8192}, {"b", 8192, 8192}, {"full", 16384, 8}};
};

TANDEM_DEVICE Tiles& tiles() { return ptx::dynamic_shared<Tiles>(); }
TANDEM_DEVICE void start() {
  if (ptx::thread_index() == 0) {
    ptx::init(tiles().full, 1);
    ptx::fence_barrier_init();
  }
  ptx::sync_block();
}
TANDEM_DEVICE bool first() { return ptx::thread_index() == 0; }
TANDEM_DEVICE uint32_t* words(uint8_t* data) { return reinterpret_cast<uint32_t*>(data); }
constexpr int row_bytes = 64 * 16 * 2;  // of the map: 16 rows of 64 elements

// ---- copies
TANDEM_DEVICE void load(const Params& p, void* to, int bytes) {
  ptx::arrive_expect(tiles().full, bytes);
  ptx::tma_load(to, p.map, tiles().full, 0, 0, 0, 0, 0);
}
TANDEM_DEVICE void load_misaligned(const Params& p) {
  start();
  if (first()) load(p, tiles().a + 64, row_bytes);
}
TANDEM_DEVICE void load_odd_column(const Params& p) {
  start();
  if (first()) {
    ptx::arrive_expect(tiles().full, row_bytes);
    ptx::tma_load(tiles().a, p.map, tiles().full, 5, 0, 0, 0, 0);
  }
  ptx::wait(tiles().full, 0);
}
TANDEM_DEVICE void load_beyond(const Params& p) {
  start();
  if (first()) load(p, tiles().b + 8192 + 1024 - 128, row_bytes);
}
TANDEM_DEVICE void load_bytes(const Params& p) {
  start();
  if (first()) load(p, tiles().a, row_bytes - 16);
  ptx::wait(tiles().full, 0);
}
TANDEM_DEVICE void load_unannounced(const Params& p) {
  start();
  if (first()) {
    ptx::tma_load(tiles().a, p.map, tiles().full, 0, 0, 0, 0, 0);
    ptx::arrive(tiles().full);
  }
  ptx::wait(tiles().full, 0);
}
TANDEM_DEVICE void load_not_waited_for(const Params& p) {
  start();
  if (first()) load(p, tiles().a, row_bytes);
}
TANDEM_DEVICE void load_read_early(const Params& p) {
  start();
  if (first()) {
    load(p, tiles().a, row_bytes);
    words(p.output)[0] = words(tiles().a)[5];
  }
  ptx::wait(tiles().full, 0);
}
TANDEM_DEVICE void load_over_unfenced_write(const Params& p) {
  start();
  if (first()) {
    words(tiles().a)[3] = 1;
    load(p, tiles().a, row_bytes);
  }
  ptx::wait(tiles().full, 0);
}
TANDEM_DEVICE void load_twice(const Params& p) {
  start();
  if (first()) {
    ptx::arrive_expect(tiles().full, 2 * row_bytes);
    ptx::tma_load(tiles().a, p.map, tiles().full, 0, 0, 0, 0, 0);
    ptx::tma_load(tiles().a, p.map, tiles().full, 0, 0, 0, 0, 0);
  }
  ptx::wait(tiles().full, 0);
}
TANDEM_DEVICE void map_not_encoded(const Params& p) {
  ptx::TensorMap map = p.map;
  map.opaque[0] = 0;
  start();
  if (first()) ptx::tma_load(tiles().a, map, tiles().full, 0, 0, 0, 0, 0);
}
TANDEM_DEVICE void map_of_another_rank(const Params& p) {
  start();
  if (first()) ptx::tma_load(tiles().a, p.map, tiles().full, 0, 0, 0, 0);
}
TANDEM_DEVICE void bulk_odd_bytes(const Params& p) {
  start();
  if (first()) ptx::bulk_load(tiles().a, p.input, 24, tiles().full);
}
TANDEM_DEVICE void fill(uint8_t* data) {
  for (int i = ptx::thread_index(); i < 2048; i += 128) words(data)[i] = 0x3f803f80;
}
TANDEM_DEVICE void store_uncommitted(const Params& p) {
  fill(tiles().a);
  ptx::fence_proxy_async();
  ptx::sync_block();
  if (first()) ptx::bulk_store(p.output, tiles().a, 1024);
}
TANDEM_DEVICE void store_below(const Params& p) {
  fill(tiles().a);
  ptx::fence_proxy_async();
  ptx::sync_block();
  if (first()) {
    ptx::tma_store(p.map, tiles().a, 0, -1, 0, 0, 0);
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
}
TANDEM_DEVICE void store_unfenced(const Params& p) {
  fill(tiles().a);
  ptx::sync_block();
  if (first()) {
    ptx::bulk_store(p.output, tiles().a, 1024);
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
}
TANDEM_DEVICE void store_overwritten(const Params& p) {
  fill(tiles().a);
  ptx::fence_proxy_async();
  ptx::sync_block();
  if (first()) {
    ptx::bulk_store(p.output, tiles().a, 1024);
    ptx::bulk_commit();
    words(tiles().a)[7] = 1;
    ptx::bulk_wait<0>();
  }
}
TANDEM_DEVICE void store_waits_for_one_group_too_few(const Params& p) {
  fill(tiles().a);
  ptx::fence_proxy_async();
  ptx::sync_block();
  if (first()) {
    ptx::bulk_store(p.output, tiles().a, 1024);
    ptx::bulk_commit();
    ptx::bulk_store(p.output + 1024, tiles().a + 1024, 1024);
    ptx::bulk_commit();
    ptx::bulk_wait<1>();
    words(tiles().a)[300] = 1;
    ptx::bulk_wait<0>();
  }
}

// ---- wgmma
using Scores = float[32];
TANDEM_DEVICE ptx::Descriptor descriptor(const uint8_t* data) {
  return ptx::matrix<ptx::Swizzle::bytes128>(data, 16, 1024);
}
TANDEM_DEVICE void prepare(Scores& d) {
  fill(tiles().a);
  fill(tiles().b);
  for (float& x : d) x = 0;
  ptx::fence_proxy_async();
  ptx::sync_block();
}
TANDEM_DEVICE void multiply(Scores& d, ptx::Descriptor a, ptx::Descriptor b) { ptx::wgmma<bf16>(d, a, b, true); }
TANDEM_DEVICE void finish(const Params& p, const Scores& d) {
  for (const float x : d) reinterpret_cast<float*>(p.output)[ptx::thread_index()] = x;
}

TANDEM_DEVICE void wgmma_unfenced(const Params& p) {
  Scores d;
  prepare(d);
  multiply(d, descriptor(tiles().a), descriptor(tiles().b));
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  finish(p, d);
}
TANDEM_DEVICE void wgmma_proxy_fence_missing(const Params& p) {
  Scores d;
  fill(tiles().a);
  fill(tiles().b);
  for (float& x : d) x = 0;
  ptx::sync_block();
  ptx::wgmma_fence(d);
  multiply(d, descriptor(tiles().a), descriptor(tiles().b));
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  finish(p, d);
}
TANDEM_DEVICE void wgmma_read_early(const Params& p) {
  Scores d;
  prepare(d);
  ptx::wgmma_fence(d);
  multiply(d, descriptor(tiles().a), descriptor(tiles().b));
  ptx::wgmma_commit();
  finish(p, d);
  ptx::wgmma_wait<0>(d);
}
TANDEM_DEVICE void wgmma_not_waited_for(const Params&) {
  Scores d;
  prepare(d);
  ptx::wgmma_fence(d);
  multiply(d, descriptor(tiles().a), descriptor(tiles().b));
  ptx::wgmma_commit();
}
TANDEM_DEVICE void wgmma_uncommitted(const Params& p) {
  Scores d;
  prepare(d);
  ptx::wgmma_fence(d);
  multiply(d, descriptor(tiles().a), descriptor(tiles().b));
  ptx::wgmma_wait<0>(d);
  finish(p, d);
}
TANDEM_DEVICE void wgmma_operand_overwritten(const Params& p) {
  Scores d;
  prepare(d);
  ptx::wgmma_fence(d);
  multiply(d, descriptor(tiles().a), descriptor(tiles().b));
  ptx::wgmma_commit();
  words(tiles().b)[ptx::thread_index()] = 0;
  ptx::wgmma_wait<0>(d);
  finish(p, d);
}
TANDEM_DEVICE void wgmma_registers_overwritten(const Params& p) {
  Scores d;
  prepare(d);
  uint32_t a[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
  ptx::wgmma_fence(d, a);
  ptx::wgmma<bf16>(d, a, descriptor(tiles().b), true);
  ptx::wgmma_commit();
  a[2] = static_cast<uint32_t>(p.argument[0]);
  ptx::wgmma_wait<0>(d, a);
  finish(p, d);
}
TANDEM_DEVICE void wgmma_misaligned(const Params& p) {
  Scores d;
  prepare(d);
  ptx::wgmma_fence(d);
  multiply(d, descriptor(tiles().a), ptx::advance(descriptor(tiles().b), 128));
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  finish(p, d);
}
TANDEM_DEVICE void wgmma_beyond(const Params& p) {
  Scores d;
  prepare(d);
  ptx::wgmma_fence(d);
  multiply(d, descriptor(tiles().a), ptx::advance(descriptor(tiles().b), 4096));
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  finish(p, d);
}
TANDEM_DEVICE void wgmma_warps_differ(const Params& p) {
  Scores d;
  prepare(d);
  ptx::wgmma_fence(d);
  multiply(d, descriptor(tiles().a), descriptor(ptx::thread_index() < 32 ? tiles().a : tiles().b));
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  finish(p, d);
}
TANDEM_DEVICE void wgmma_lanes_differ(const Params& p) {
  Scores d;
  prepare(d);
  ptx::wgmma_fence(d);
  multiply(d, descriptor(tiles().a), descriptor(ptx::thread_index() % 2 ? tiles().a : tiles().b));
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  finish(p, d);
}
TANDEM_DEVICE void wgmma_accumulators_overlap(const Params& p) {
  float d[40];
  for (float& x : d) x = 0;
  Scores zero;
  prepare(zero);
  ptx::wgmma_fence(d);
  multiply(reinterpret_cast<Scores&>(d[0]), descriptor(tiles().a), descriptor(tiles().b));
  multiply(reinterpret_cast<Scores&>(d[8]), descriptor(tiles().a), descriptor(tiles().b));
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  finish(p, zero);
}

}  // namespace tandem::faults

#define FAULT(name) TANDEM_KERNEL(name, tandem::conformance::Params, 128, tandem::faults::Tiles, tandem::faults::name)
FAULT(load_misaligned)
FAULT(load_odd_column)
FAULT(load_beyond)
FAULT(load_bytes)
FAULT(load_unannounced)
FAULT(load_not_waited_for)
FAULT(load_read_early)
FAULT(load_over_unfenced_write)
FAULT(load_twice)
FAULT(map_not_encoded)
FAULT(map_of_another_rank)
FAULT(bulk_odd_bytes)
FAULT(store_uncommitted)
FAULT(store_below)
FAULT(store_unfenced)
FAULT(store_overwritten)
FAULT(store_waits_for_one_group_too_few)
FAULT(wgmma_unfenced)
FAULT(wgmma_proxy_fence_missing)
FAULT(wgmma_read_early)
FAULT(wgmma_not_waited_for)
FAULT(wgmma_uncommitted)
FAULT(wgmma_operand_overwritten)
FAULT(wgmma_registers_overwritten)
FAULT(wgmma_misaligned)
FAULT(wgmma_beyond)
FAULT(wgmma_warps_differ)
FAULT(wgmma_lanes_differ)
FAULT(wgmma_accumulators_overlap)
