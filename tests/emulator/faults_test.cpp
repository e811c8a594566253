// Each check of the emulator on a small kernel with one fault: it must be reported by its name, whatever the seed. And
// the rules of tensor maps.
#include <gtest/gtest.h>

#include <cstring>

#include "library.hpp"
#include "params.hpp"

namespace tandem::emulator {
namespace {

struct Fault {
  const char* kernel;
  const char* kind;
  int grid = 1;
  int threads = 64;
};

const Fault faults[] = {
    {"shared_race", "race"},
    {"shared_uninitialised", "uninitialised"},
    {"shared_beyond", "out of bounds"},
    {"shuffle_orders_nothing", "race"},
    {"global_read_beyond", "out of bounds"},
    {"global_write_beyond", "out of bounds"},
    {"global_write_before", "out of bounds"},
    {"write_to_input", "write to an input"},
    {"blocks_race", "race in global memory", 2},
    {"global_race", "race in global memory"},
    {"global_uninitialised", "uninitialised"},
    {"global_uninitialised_load", "uninitialised", 1, 128},
    {"flag_raised_early", "race in global memory", 2},
    {"flag_without_barrier", "race in global memory", 2},
    {"flag_never_raised", "deadlock", 2},
    {"flag_after_bulk_read", "race in global memory", 2},
    {"global_proxy_fence_missing", "missing proxy fence"},
    {"global_proxy_fence_for_shared", "missing proxy fence"},
    {"mbarrier_uninitialised", "uninitialised"},
    {"mbarrier_overwritten", "mbarrier overwritten"},
    {"mbarrier_initialised_twice", "initialised twice"},
    {"mbarrier_arrivals", "too many arrivals"},
    {"mbarrier_parity", "bad parity"},
    {"mbarrier_never_completes", "deadlock"},
    {"mbarrier_polled_for_ever", "deadlock"},
    {"named_barrier_id", "bad barrier"},
    {"named_barrier_count", "bad barrier"},
    {"named_barrier_clash", "barrier id clash"},
    {"named_barrier_alone", "deadlock"},
    {"divergent_lanes", "divergent collective"},
    {"lanes_missing", "deadlock"},
    {"not_uniform", "not uniform"},
    {"arithmetic_overflow", "undefined arithmetic"},
    {"arithmetic_division", "undefined arithmetic"},
    {"arithmetic_index", "undefined arithmetic"},
    {"registers_odd", "registers", 1, 128},
    {"registers_wrong_way", "registers", 1, 128},
    {"registers_disagree", "registers", 1, 128},
    {"load_misaligned", "misaligned", 1, 128},
    {"load_odd_column", "misaligned", 1, 128},
    {"load_beyond", "out of bounds", 1, 128},
    {"load_bytes", "transaction bytes", 1, 128},
    {"load_unannounced", "use before completion", 1, 128},
    {"load_not_waited_for", "use before completion", 1, 128},
    {"load_read_early", "use before completion", 1, 128},
    {"load_over_unfenced_write", "missing proxy fence", 1, 128},
    {"load_twice", "race", 1, 128},
    {"map_not_encoded", "bad tensor map", 1, 128},
    {"map_of_another_rank", "bad tensor map", 1, 128},
    {"bulk_odd_bytes", "misaligned", 1, 128},
    {"store_uncommitted", "missing bulk wait", 1, 128},
    {"store_below", "out of bounds", 1, 128},
    {"store_unfenced", "missing proxy fence", 1, 128},
    {"store_overwritten", "overwrite while in use", 1, 128},
    {"store_waits_for_one_group_too_few", "overwrite while in use", 1, 128},
    {"wgmma_unfenced", "missing wgmma fence", 1, 128},
    {"wgmma_proxy_fence_missing", "missing proxy fence", 1, 128},
    {"wgmma_read_early", "accumulator touched in flight", 1, 128},
    {"wgmma_not_waited_for", "missing wgmma wait", 1, 128},
    {"wgmma_uncommitted", "wait names an accumulator still in flight", 1, 128},
    {"wgmma_operand_overwritten", "overwrite while in use", 1, 128},
    {"wgmma_registers_overwritten", "operand changed in flight", 1, 128},
    {"wgmma_misaligned", "misaligned descriptor", 1, 128},
    {"wgmma_beyond", "out of bounds", 1, 128},
    {"wgmma_warps_differ", "divergent collective", 1, 128},
    {"wgmma_lanes_differ", "not uniform", 1, 128},
    {"wgmma_accumulators_overlap", "accumulators overlap", 1, 128},
};

TensorMapRequest good_request(void* base) {
  TensorMapRequest request;
  request.element = Dtype::bf16;
  request.rank = 5;
  request.base = base;
  const uint64_t size[5] = {64, 16, 1, 1, 1}, stride[4] = {128, 2048, 2048, 2048};
  const uint32_t box[5] = {64, 16, 1, 1, 1};
  std::memcpy(request.size, size, sizeof size);
  std::memcpy(request.stride, stride, sizeof stride);
  std::memcpy(request.box, box, sizeof box);
  request.swizzle = 128;
  return request;
}

std::vector<std::string> launch(const Kernel& kernel, const Fault& fault, const conformance::Params& params,
                                const std::vector<Buffer>& buffers, uint64_t seed) {
  std::vector<std::string> reports;
  LaunchOptions options;
  options.seed = seed;
  options.preempt = seed % 2 ? 5 : 0;
  options.buffers = buffers.data();
  options.buffer_count = buffers.size();
  options.report = [](void* list, const char* text) {
    static_cast<std::vector<std::string>*>(list)->emplace_back(text);
  };
  options.context = &reports;
  open_library(TANDEM_FAULTS_LIBRARY).launch(kernel, fault.grid, fault.threads, kernel.shared_bytes, &params, options);
  return reports;
}

class EmulatorFault : public testing::TestWithParam<Fault> {};

TEST_P(EmulatorFault, IsReported) {
  const Fault& fault = GetParam();
  const Interface& library = open_library(TANDEM_FAULTS_LIBRARY);
  const Kernel* kernel = find_kernel(library, fault.kernel);
  ASSERT_NE(kernel, nullptr);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const Memory input(std::vector<uint8_t>(4096, 1)), output(std::vector<uint8_t>(4096, 0)),
        flags(std::vector<uint8_t>(256, 0));
    conformance::Params params{};
    params.input = input.data;
    params.output = output.data;
    params.flags = reinterpret_cast<int32_t*>(flags.data);
    char error[200] = "";
    ASSERT_TRUE(library.encode(good_request(input.data), &params.map, error, sizeof error)) << error;
    std::vector<uint8_t> written(4096);
    const auto reports = launch(*kernel, fault, params,
                                {{"input", input.data, 4096, false},
                                 {"output", output.data, 4096, true, written.data()},
                                 {"flags", flags.data, 256, true}},
                                seed);
    bool found = false;
    std::string all;
    for (const std::string& report : reports) {
      found = found || report.rfind(std::string(fault.kind) + ":", 0) == 0;
      all += report + '\n';
    }
    EXPECT_TRUE(found) << "seed " << seed << ": no \"" << fault.kind << "\" among\n" << all;
  }
}

INSTANTIATE_TEST_SUITE_P(Emulator, EmulatorFault, testing::ValuesIn(faults),
                         [](const testing::TestParamInfo<Fault>& info) { return std::string(info.param.kernel); });

/// Rows of 64 bytes, 128 bytes apart: the kernel writes those from `offset` on.
std::vector<std::string> write_rows(size_t offset, const std::vector<size_t>& tensors) {
  const Interface& library = open_library(TANDEM_FAULTS_LIBRARY);
  const Memory memory(std::vector<uint8_t>(4096, 0));
  conformance::Params params{};
  params.output = memory.data + offset;
  std::vector<Buffer> buffers;
  for (const size_t begin : tensors)
    buffers.push_back({"rows", memory.data + begin, 3 * 128 + 64, true, nullptr, 2, 4, {4, 16}, {128, 4}});
  return launch(*find_kernel(library, "global_rows"), {"global_rows", ""}, params, buffers, 1);
}

TEST(GlobalMemory, GapsBetweenRowsBelongToNobody) {
  EXPECT_TRUE(write_rows(0, {0}).empty());
  const auto reports = write_rows(64, {0});
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0].rfind("out of bounds:", 0), 0U) << reports[0];
}
TEST(GlobalMemory, GapsMayHoldAnotherTensor) {
  EXPECT_TRUE(write_rows(64, {0, 64}).empty());
  EXPECT_TRUE(write_rows(0, {64, 0}).empty());
}

TEST(TensorMapRules, AreThoseOfTheDriver) {
  const Interface& library = open_library(TANDEM_FAULTS_LIBRARY);
  const Memory memory(std::vector<uint8_t>(4096, 0));
  const auto refused = [&](const char* rule, auto change) {
    TensorMapRequest request = good_request(memory.data);
    change(request);
    ptx::TensorMap map;
    char error[200] = "";
    EXPECT_FALSE(library.encode(request, &map, error, sizeof error)) << rule;
    EXPECT_NE(std::string(error).find(rule), std::string::npos) << error;
  };
  ptx::TensorMap map;
  char error[200] = "";
  EXPECT_TRUE(library.encode(good_request(memory.data), &map, error, sizeof error)) << error;
  refused("element type", [](TensorMapRequest& r) { r.element = Dtype::none; });
  refused("rank 6", [](TensorMapRequest& r) { r.rank = 6; });
  refused("multiple of 16", [](TensorMapRequest& r) { r.base = static_cast<uint8_t*>(r.base) + 8; });
  refused("size[2]", [](TensorMapRequest& r) { r.size[2] = 0; });
  refused("size[1]", [](TensorMapRequest& r) { r.size[1] = (uint64_t{1} << 32) + 1; });
  refused("box[1]", [](TensorMapRequest& r) { r.box[1] = 257; });
  refused("stride[0]", [](TensorMapRequest& r) { r.stride[0] = 136; });
  refused("stride[3]", [](TensorMapRequest& r) { r.stride[3] = uint64_t{1} << 40; });
  refused("rows have 24 bytes", [](TensorMapRequest& r) { r.box[0] = 12; });
  refused("swizzle of 48", [](TensorMapRequest& r) { r.swizzle = 48; });
  refused("more than the swizzle", [](TensorMapRequest& r) { r.swizzle = 64; });
}

TEST(Launch, RefusesWhatNoDeviceTakes) {
  const Interface& library = open_library(TANDEM_FAULTS_LIBRARY);
  const Kernel* kernel = find_kernel(library, "not_uniform");
  ASSERT_NE(kernel, nullptr);
  const conformance::Params params{};
  const LaunchOptions options;
  EXPECT_GT(library.launch(*kernel, 0, 64, kernel->shared_bytes, &params, options).findings, 0) << "no blocks";
  EXPECT_GT(library.launch(*kernel, 1, 40, kernel->shared_bytes, &params, options).findings, 0) << "part of a warp";
  EXPECT_GT(library.launch(*kernel, 1, 256, kernel->shared_bytes, &params, options).findings, 0) << "above the bound";
  EXPECT_GT(library.launch(*kernel, 1, 64, 232449, &params, options).findings, 0) << "shared memory";
}

}  // namespace
}  // namespace tandem::emulator
