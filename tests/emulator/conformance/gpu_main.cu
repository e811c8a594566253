// Runs every conformance case on a Hopper GPU and writes what came out.
//
// usage: conformance_gpu FOLDER [NAME]
//   FOLDER/vectors.json       what the repository keeps in tests/emulator/vectors/
//   FOLDER/outputs/NAME.bin   whole outputs, for looking into a difference
//   NAME                      only cases whose name contains it
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <sstream>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "cases.hpp"
#include "params.hpp"

#include "barrier.cu"
#include "tma.cu"
#include "warp.cu"
#include "wgmma.cu"

namespace {

using tandem::conformance::Case;
using tandem::conformance::Params;

const std::map<std::string, const void*>& kernels() {
  static const std::map<std::string, const void*> table = {
#define KERNEL(name) {#name, reinterpret_cast<const void*>(&name)},
      KERNEL(mbarrier_phases) KERNEL(mbarrier_bytes) KERNEL(named_barriers) KERNEL(trade_registers)
          KERNEL(flags_between_blocks) KERNEL(atomics) KERNEL(warp_collectives) KERNEL(matrices) KERNEL(conversions)
              KERNEL(special_functions) KERNEL(tma_load_4d) KERNEL(tma_load_5d) KERNEL(bulk_load) KERNEL(tma_store_5d)
                  KERNEL(tma_reduce_add_5d) KERNEL(bulk_store) KERNEL(bulk_reduce_add)
#undef WGMMA_MODE
#define WGMMA_MODE(name, ...) KERNEL(wgmma_##name)
#include "wgmma_modes.inc"
#undef KERNEL
  };
  return table;
}

[[noreturn]] void fail(const std::string& what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), why);
  std::exit(1);
}
void check(cudaError_t error, const std::string& what) {
  if (error != cudaSuccess) fail(what, cudaGetErrorString(error));
}

void encode(const Case& c, uint8_t* base, Params& params) {
  static const auto function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found),
          "cuTensorMapEncodeTiled");
    return reinterpret_cast<CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                         const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                         CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill)>(entry);
  }();
  const auto& m = *c.map;
  const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
  const auto type = m.element == tandem::Dtype::fp32   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                    : m.element == tandem::Dtype::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                       : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const auto swizzle = m.swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                       : m.swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                         : CU_TENSOR_MAP_SWIZZLE_32B;
  cuuint64_t size[5], stride[4];
  for (int i = 0; i < 5; ++i) size[i] = m.size[i];
  for (int i = 0; i < 4; ++i) stride[i] = m.stride[i];
  const CUresult result = function(reinterpret_cast<CUtensorMap*>(&params.map), type, static_cast<cuuint32_t>(m.rank),
                                   base + c.map_offset, size, stride, m.box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                   swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) fail(c.name, "cuTensorMapEncodeTiled refuses the map");
}

std::vector<uint8_t> run(const Case& c) {
  uint8_t *input = nullptr, *output = nullptr;
  int32_t* flags = nullptr;
  check(cudaMalloc(&input, c.input.size()), c.name);
  check(cudaMalloc(&output, c.output.size()), c.name);
  check(cudaMalloc(&flags, 256), c.name);
  check(cudaMemset(flags, 0, 256), c.name);
  check(cudaMemcpy(input, c.input.data(), c.input.size(), cudaMemcpyHostToDevice), c.name);
  check(cudaMemcpy(output, c.output.data(), c.output.size(), cudaMemcpyHostToDevice), c.name);
  Params params{};
  params.input = input;
  params.output = output;
  params.flags = flags;
  std::memcpy(params.argument, c.argument, sizeof c.argument);
  if (c.map) encode(c, c.map_of_output ? output : input, params);
  const auto kernel = kernels().find(c.kernel);
  if (kernel == kernels().end()) fail(c.name, "no such kernel");
  check(cudaFuncSetAttribute(kernel->second, cudaFuncAttributeMaxDynamicSharedMemorySize, c.shared_bytes), c.name);
  void* arguments[] = {&params};
  check(cudaLaunchKernel(kernel->second, dim3(static_cast<unsigned>(c.grid)), dim3(static_cast<unsigned>(c.threads)),
                         arguments, static_cast<size_t>(c.shared_bytes), nullptr),
        c.name);
  check(cudaDeviceSynchronize(), c.name);
  std::vector<uint8_t> result(c.output.size());
  check(cudaMemcpy(result.data(), output, result.size(), cudaMemcpyDeviceToHost), c.name);
  cudaFree(input);
  cudaFree(output);
  cudaFree(flags);
  return result;
}

std::string hexadecimal(const std::vector<uint8_t>& bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) (text += digits[byte >> 4]) += digits[byte & 15];
  return text;
}

/// One case as a line of vectors.json: whole outputs where they are compared with a tolerance, else a hash.
std::string record(const Case& c, const std::vector<uint8_t>& result) {
  std::ostringstream line;
  line << "  \"" << c.name << "\": {\"input\": \"" << std::hex << tandem::conformance::hash(c.input)
       << "\", \"hash\": \"" << tandem::conformance::hash(result) << std::dec << '"';
  if (c.compare != tandem::conformance::Compare::exact || result.size() <= 128)
    line << ", \"bytes\": \"" << hexadecimal(result) << '"';
  line << "}";
  return line.str();
}

/// Runs cases from `first` on in this process, which a kernel's fault ends; writes each result to a file of its own.
void run_from(const std::vector<Case>& cases, size_t first, const std::filesystem::path& folder) {
  for (size_t i = first; i < cases.size(); ++i) {
    const std::vector<uint8_t> result = run(cases[i]);
    std::string file = cases[i].name;
    std::replace(file.begin(), file.end(), '/', '-');
    std::ofstream(folder / "outputs" / (file + ".bin"), std::ios::binary)
        .write(reinterpret_cast<const char*>(result.data()), static_cast<std::streamsize>(result.size()));
    std::ofstream(folder / "lines" / std::to_string(i)) << record(cases[i], result);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: conformance_gpu FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = arguments[1];
  std::filesystem::create_directories(folder / "outputs");
  std::filesystem::create_directories(folder / "lines");
  const std::vector<Case> cases = tandem::conformance::all_cases();
  std::ofstream json(folder / "vectors.json");
  json << "{\"cases\": {";
  const char* separator = "\n";
  int faults = 0;
  for (size_t done = 0; done < cases.size();) {
    // A child of its own for each stretch, since after a kernel's fault a process can't use the GPU any more.
    const pid_t child = fork();
    if (child == 0) {
      run_from(cases, done, folder);
      std::_Exit(0);
    }
    waitpid(child, nullptr, 0);
    for (; done < cases.size(); ++done) {
      std::ifstream line(folder / "lines" / std::to_string(done));
      if (!line) break;
      json << separator << line.rdbuf();
      separator = ",\n";
    }
    if (done < cases.size()) {
      std::fprintf(stderr, "left out: %s\n", cases[done].name.c_str());
      ++faults;
      ++done;
    }
  }
  json << "\n }}\n";
  std::printf("%zu cases, %d left out for a fault, written to %s\n", cases.size(), faults, folder.c_str());
  return json.good() ? 0 : 1;
}
