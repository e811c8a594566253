// The model of time. One warp of each warpgroup is traced: they do the same.
#include "backends/emulator/timeline.hpp"

#include <algorithm>

#include "backends/emulator/block.hpp"

namespace tandem::emulator {

namespace {

constexpr double copy_latency = 600, copy_bytes_a_cycle = 32, issue_cost = 12, rendezvous_cost = 2;

const char* warpgroup_name(int warpgroup) {
  static constexpr const char* names[] = {"warpgroup 0", "warpgroup 1", "warpgroup 2", "warpgroup 3",
                                          "warpgroup 4", "warpgroup 5", "warpgroup 6", "warpgroup 7"};
  return names[warpgroup];
}

}  // namespace

void Timeline::event(const char* track, const char* kind, const std::string& detail, double begin, double end) {
  if (traced_ && options_.event && end > begin)
    options_.event(options_.context, {track, kind, detail.c_str(), begin, end});
}

void Timeline::rendezvous(Block& block, int warp) {
  if (!on()) return;
  double last = 0;
  int work = 0;
  for (int lane = 0; lane < warp_lanes; ++lane) {
    Thread& thread = block.thread(warp * warp_lanes + lane);
    last = std::max(last, thread.time);
    work = std::max(work, thread.work);
    thread.work = 0;
  }
  if (work > 8) {
    double& free = quarter_free_[static_cast<size_t>(warp % 4)];
    const double begin = std::max(last, free);
    last = free = begin + work;
    if (work > 40 && warp % 4 == 0) event(warpgroup_name(warp / 4), "arithmetic", "", begin, last);
  }
  for (int lane = 0; lane < warp_lanes; ++lane) block.thread(warp * warp_lanes + lane).time = last + rendezvous_cost;
}

double Timeline::copy(Thread& issuer, int bytes, bool store, const std::string& detail) {
  issuer.time += issue_cost;
  copies_free_ = std::max(copies_free_, issuer.time) + bytes / copy_bytes_a_cycle;
  const double end = copies_free_ + copy_latency;
  // The chunks of a stage are copies of their own: the stage says enough.
  event("TMA", store ? "store" : "load", detail.substr(0, detail.find('+')), issuer.time, end);
  return end;
}

double Timeline::wgmma(int warpgroup, int width, bool from_registers, double ready) {
  const double begin = std::max(tensor_free_, ready);
  tensor_free_ = begin + width / 2.0;
  event("tensor core", from_registers ? "wgmma RS" : "wgmma SS", warpgroup_name(warpgroup), begin, tensor_free_);
  return tensor_free_;
}

void Timeline::registers(const Thread& thread, bool up) {
  if (traced_ && options_.event && thread.lane == 0 && thread.warp % 4 == 0)
    options_.event(options_.context,
                   {warpgroup_name(thread.warp / 4), "role", up ? "consumer" : "producer", thread.time, thread.time});
}

void Timeline::waited(const Thread& thread, const char* kind, const std::string& detail, double begin) {
  if (thread.lane == 0 && thread.warp % 4 == 0)
    event(warpgroup_name(thread.warp / 4), kind, detail, begin, thread.time);
}

}  // namespace tandem::emulator
