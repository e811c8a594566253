// NumPy's .npy format, versions 1.0 to 3.0 (numpy.lib.format): one array a file.
#pragma once

#include <span>
#include <string>

#include "tools/io/array.hpp"

namespace tandem::tools {

/// Reads f2, f4, f8 (as fp32), i4, i8 and V2, which is how NumPy writes the bf16 of ml_dtypes; little-endian. Arrays in
/// Fortran order are brought into row-major order. `file` is for error messages.
Array parse_npy(std::span<const std::byte> bytes, const std::string& file);
Array read_npy(const std::string& path);

/// NumPy alone has neither bf16, which is written as float32, nor e4m3, which is written as the bits, uint8.
Bytes format_npy(const Array& array);
void write_npy(const std::string& path, const Array& array);

}  // namespace tandem::tools
