// Runs the conformance cases in the emulator, with several seeds, and compares with what a GPU wrote.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cases.hpp"
#include "library.hpp"
#include "params.hpp"

namespace tandem::conformance {
namespace {

const emulator::Interface& library() {
  static const emulator::Interface& interface = emulator::open_library(TANDEM_CONFORMANCE_LIBRARY);
  return interface;
}

const nlohmann::json& vectors() {
  static const nlohmann::json recorded = [] {
    std::ifstream file(TANDEM_VECTORS);
    return file ? nlohmann::json::parse(file) : nlohmann::json();
  }();
  return recorded;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = all_cases();
  return all;
}

/// The output, and what the checks reported.
std::pair<std::vector<uint8_t>, std::string> run(const Case& c, uint64_t seed) {
  const emulator::Kernel* kernel = emulator::find_kernel(library(), c.kernel.c_str());
  if (kernel == nullptr) return {{}, "no such kernel"};
  const emulator::Memory input(c.input), output(c.output), flags(std::vector<uint8_t>(256));
  Params params{};
  params.input = input.data;
  params.output = output.data;
  params.flags = reinterpret_cast<int32_t*>(flags.data);
  std::memcpy(params.argument, c.argument, sizeof c.argument);
  if (c.map) {
    emulator::TensorMapRequest request = *c.map;
    request.base = (c.map_of_output ? output : input).data + c.map_offset;
    char error[200] = "";
    if (!library().encode(request, &params.map, error, sizeof error)) return {{}, error};
  }
  const emulator::Buffer buffers[] = {{"input", input.data, c.input.size(), false},
                                      {"output", output.data, c.output.size(), true},
                                      {"flags", flags.data, 256, true}};
  std::string reports;
  emulator::LaunchOptions options;
  options.seed = seed;
  options.exact_sums = true;
  options.preempt = seed % 2 ? 5 : 0;
  options.buffers = buffers;
  options.buffer_count = std::size(buffers);
  options.report = [](void* text, const char* report) { (*static_cast<std::string*>(text) += report) += '\n'; };
  options.context = &reports;
  library().launch(*kernel, c.grid, c.threads, static_cast<size_t>(c.shared_bytes), &params, options);
  return {output.content(), reports};
}

std::vector<uint8_t> from_hexadecimal(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

/// Distance in representable numbers.
int64_t ulps(float a, float b) {
  const auto order = [](float x) {
    const auto bits = std::bit_cast<int32_t>(x);
    return bits < 0 ? int64_t{INT32_MIN} - bits : int64_t{bits};
  };
  return std::abs(order(a) - order(b));
}

bool close(float mine, float gpu) {
  if (std::isnan(mine) || std::isnan(gpu)) return std::isnan(mine) && std::isnan(gpu);
  return ulps(mine, gpu) <= 2 || std::abs(mine - gpu) <= 0x1p-22f;
}

class Conformance : public testing::TestWithParam<size_t> {};

TEST_P(Conformance, AgreesWithTheGpu) {
  const Case& c = cases()[GetParam()];
  const auto [first, reports] = run(c, 1);
  EXPECT_EQ(reports, "");
  for (const uint64_t seed : {2u, 3u}) {
    const auto [again, more] = run(c, seed);
    EXPECT_EQ(more, "") << "seed " << seed;
    EXPECT_EQ(hash(again), hash(first)) << "seed " << seed << " gives another result";
  }
  if (vectors().is_null()) GTEST_SKIP() << "no results of a GPU are recorded in tests/emulator/vectors";
  ASSERT_TRUE(vectors()["cases"].contains(c.name)) << "this case isn't recorded; run conformance_gpu again";
  const auto& recorded = vectors()["cases"][c.name];
  ASSERT_EQ(std::stoull(recorded["input"].get<std::string>(), nullptr, 16), hash(c.input))
      << "the input has changed since the result was recorded; run conformance_gpu again";
  if (c.compare == Compare::exact) {
    EXPECT_EQ(std::stoull(recorded["hash"].get<std::string>(), nullptr, 16), hash(first)) << "not the GPU's bytes";
    return;
  }
  const std::vector<uint8_t> gpu = from_hexadecimal(recorded["bytes"]);
  ASSERT_EQ(gpu.size(), first.size());
  int different = 0;
  for (size_t i = 0; i + 4 <= gpu.size(); i += 4) {
    float mine, theirs;
    std::memcpy(&mine, &first[i], 4);
    std::memcpy(&theirs, &gpu[i], 4);
    if (close(mine, theirs)) continue;
    if (++different <= 5) ADD_FAILURE() << "element " << i / 4 << ": " << mine << ", the GPU has " << theirs;
  }
  EXPECT_EQ(different, 0);
}

std::string test_name(const testing::TestParamInfo<size_t>& info) {
  std::string name = cases()[info.param].name;
  for (char& letter : name)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Emulator, Conformance, testing::Range(size_t{0}, all_cases().size()), test_name);

}  // namespace
}  // namespace tandem::conformance
