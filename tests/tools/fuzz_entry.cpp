// libFuzzer's entry to one of the readers.
#include <cstdint>
#include <span>

#include "tools/failure.hpp"
#include "tools/io/npy.hpp"
#include "tools/io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
#if defined(TANDEM_FUZZ_npy)
    tandem::tools::parse_npy(bytes, "fuzz");
#else
    const auto file = tandem::tools::Safetensors::parse({bytes.begin(), bytes.end()}, "fuzz");
    for (const auto& name : file.names()) file.at(name);
#endif
  } catch (const tandem::tools::Failure&) {
    return 0;
  }
  return 0;
}
