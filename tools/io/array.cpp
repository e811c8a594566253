// Arrays as files hold them.
#include "tools/io/array.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "common/dtypes.hpp"
#include "tools/failure.hpp"

namespace tandem::tools {
namespace {

template <class T, class Out>
std::vector<Out> elements(const Array& array) {
  std::vector<Out> values(array.bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(&element, array.bytes.data() + i * sizeof(T), sizeof(T));
    if constexpr (std::is_integral_v<T>) {
      values[i] = element;
    } else {
      values[i] = to_float(element);
    }
  }
  return values;
}

template <class T>
Bytes rounded(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T element = from_float<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
  }
  return bytes;
}

}  // namespace

size_t size_of(Dtype dtype) {
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
    case Dtype::none:
      break;
  }
  return 0;
}

std::string to_string(const std::vector<int64_t>& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

int64_t count_elements(const std::vector<int64_t>& shape, const std::string& file) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) throw Failure(fmt::format("{}: the shape {} has a negative size", file, to_string(shape)));
    // 2^59 elements of at most 8 bytes: byte counts stay within 64 bits.
    if (__builtin_mul_overflow(count, size, &count) || count > (int64_t{1} << 59)) {
      throw Failure(fmt::format("{}: the shape {} is larger than any memory", file, to_string(shape)));
    }
  }
  return count;
}

int64_t count_elements(const Array& array) { return count_elements(array.shape, "array"); }

Array convert(Array array, Dtype dtype) {
  if (array.dtype == dtype) return array;
  return array_of(floats(array, "conversion"), std::move(array.shape), dtype);
}

std::vector<float> floats(const Array& array, const std::string& what) {
  switch (array.dtype) {
    case Dtype::fp32:
      return elements<float, float>(array);
    case Dtype::fp16:
      return elements<fp16, float>(array);
    case Dtype::bf16:
      return elements<bf16, float>(array);
    default:
      throw Failure(fmt::format("{}: elements are {}; fp32, fp16 or bf16 is needed", what, name(array.dtype)));
  }
}

std::vector<int64_t> integers(const Array& array, const std::string& what) {
  if (array.dtype == Dtype::int32) return elements<int32_t, int64_t>(array);
  if (array.dtype == Dtype::int64) return elements<int64_t, int64_t>(array);
  throw Failure(fmt::format("{}: elements are {}; int32 or int64 is needed", what, name(array.dtype)));
}

Array array_of(const std::vector<float>& values, std::vector<int64_t> shape, Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return {dtype, std::move(shape), rounded<float>(values)};
    case Dtype::fp16:
      return {dtype, std::move(shape), rounded<fp16>(values)};
    case Dtype::bf16:
      return {dtype, std::move(shape), rounded<bf16>(values)};
    default:
      throw Failure(fmt::format("floating-point numbers can't be converted to {}", name(dtype)));
  }
}

}  // namespace tandem::tools
