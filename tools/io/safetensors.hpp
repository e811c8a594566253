// The .safetensors format: a JSON header of names, types, shapes and offsets, then the data.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/io/array.hpp"

namespace tandem::tools {

/// A file whose header has been checked: every tensor lies within the data, and no two overlap.
class Safetensors {
 public:
  static Safetensors parse(Bytes bytes, const std::string& file);
  static Safetensors read(const std::string& path);

  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return entries_.count(name) != 0; }
  /// F32, F16, BF16, F8_E4M3, I8, I32 and I64; Failure for a name that isn't there (the message lists those that are)
  /// and for other types, which a file may hold as long as nobody asks for them.
  Array at(const std::string& name) const;

 private:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    size_t begin, end;  // within bytes_
  };
  void check_overlaps() const;

  std::string file_;
  Bytes bytes_;
  std::map<std::string, Entry> entries_;
};

Bytes format_safetensors(const std::map<std::string, Array>& arrays);
void write_safetensors(const std::string& path, const std::map<std::string, Array>& arrays);

}  // namespace tandem::tools
