// The emulator's tensor maps, made under the rules of cuTensorMapEncodeTiled (CUDA Driver API, "Tensor Map Object
// Management"), with what the PTX ISA says of tensors.
#include <cstring>

#include "backends/emulator/copies.hpp"
#include "backends/emulator/report.hpp"

namespace tandem::emulator {

namespace {

int element_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
    case Dtype::int32:
      return 4;
    case Dtype::fp16:
    case Dtype::bf16:
      return 2;
    case Dtype::e4m3:
    case Dtype::int8:
      return 1;
    case Dtype::int64:
      return 8;
    default:
      return 0;
  }
}

/// The first rule that a request breaks; empty if none.
std::string broken_rule(const TensorMapRequest& request) {
  const int bytes = element_bytes(request.element);
  const auto base = reinterpret_cast<uint64_t>(request.base);
  // PTX ISA, "Tensor Dimension, size and format".
  if (!bytes) return "the element type is not supported";
  if (request.rank < 1 || request.rank > 5) return format("rank %d; 1 to 5 is allowed", request.rank);
  if (!base || base % 16) return "the address must be a multiple of 16 bytes";
  for (int i = 0; i < request.rank; ++i) {
    if (request.size[i] < 1 || request.size[i] > (1ull << 32))
      return format("size[%d] is %llu; 1 to 2^32 is allowed", i, static_cast<unsigned long long>(request.size[i]));
    if (request.box[i] < 1 || request.box[i] > 256)
      return format("box[%d] is %u; 1 to 256 is allowed", i, request.box[i]);
    if (i + 1 < request.rank && (request.stride[i] % 16 || request.stride[i] >= (1ull << 40)))
      return format("stride[%d] is %llu bytes; multiples of 16 below 2^40 are allowed", i,
                    static_cast<unsigned long long>(request.stride[i]));
  }
  // PTX ISA, "Bounding Box".
  const int inner = static_cast<int>(request.box[0]) * bytes;
  if (inner % 16) return format("the box's rows have %d bytes; multiples of 16 are allowed", inner);
  // PTX ISA, "Swizzling Modes".
  if (request.swizzle != 0 && request.swizzle != 32 && request.swizzle != 64 && request.swizzle != 128)
    return format("swizzle of %d bytes; 0, 32, 64 and 128 exist", request.swizzle);
  if (request.swizzle && inner > request.swizzle)
    return format("the box's rows have %d bytes, more than the swizzle's %d", inner, request.swizzle);
  return {};
}

}  // namespace

bool encode(const TensorMapRequest& request, ptx::TensorMap* map, char* error, size_t error_bytes) {
  const std::string rule = broken_rule(request);
  if (!rule.empty()) {
    std::snprintf(error, error_bytes, "tensor map: %s", rule.c_str());
    return false;
  }
  EncodedMap encoded{};
  encoded.magic = EncodedMap::valid;
  encoded.base = reinterpret_cast<uint64_t>(request.base);
  encoded.rank = static_cast<uint8_t>(request.rank);
  encoded.element_bytes = static_cast<uint8_t>(element_bytes(request.element));
  encoded.swizzle = static_cast<uint8_t>(request.swizzle);
  encoded.float32 = request.element == Dtype::fp32;
  for (int i = 0; i < 5; ++i) {
    encoded.box[i] = static_cast<uint16_t>(i < request.rank ? request.box[i] : 1);
    encoded.size_minus_1[i] = i < request.rank ? static_cast<uint32_t>(request.size[i] - 1) : 0;
    if (i + 1 < request.rank) encoded.stride[i] = request.stride[i];
  }
  *map = {};
  std::memcpy(map, &encoded, sizeof encoded);
  return true;
}

}  // namespace tandem::emulator
