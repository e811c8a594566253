// A dense, row-major array as files hold it, and conversions between its element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/tandem.hpp"

namespace tandem::tools {

using Bytes = std::vector<std::byte>;

struct Array {
  Dtype dtype = Dtype::none;
  std::vector<int64_t> shape;
  Bytes bytes;
};

size_t size_of(Dtype dtype);

/// "(1, 1024, 9, 64)"
std::string to_string(const std::vector<int64_t>& shape);

/// Elements of a shape; Failure, naming `file`, where a size is negative or the bytes of the product pass 2^62.
int64_t count_elements(const std::vector<int64_t>& shape, const std::string& file);
int64_t count_elements(const Array& array);

/// Between fp32, fp16 and bf16, rounding to nearest even. Failure for integers.
Array convert(Array array, Dtype dtype);

/// The elements as float or as int64; Failure, naming `what`, for the other kind of array.
std::vector<float> floats(const Array& array, const std::string& what);
std::vector<int64_t> integers(const Array& array, const std::string& what);

Array array_of(const std::vector<float>& values, std::vector<int64_t> shape, Dtype dtype = Dtype::fp32);

}  // namespace tandem::tools
