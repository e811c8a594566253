// The .safetensors reader trusts nothing: header length, types, shapes, offsets and overlaps are all checked.
#include "tools/io/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tools/failure.hpp"
#include "tools/io/file.hpp"

namespace tandem::tools {
namespace {

using nlohmann::json;

constexpr size_t prefix = 8;                      // the header's length, 64 bits little-endian
constexpr uint64_t longest_header = 100'000'000;  // the format's own limit

struct Type {
  const char* name;
  size_t bytes;
  Dtype dtype;  // none: known, not supported
};
constexpr Type types[] = {{"F32", 4, Dtype::fp32},  {"F16", 2, Dtype::fp16},     {"BF16", 2, Dtype::bf16},
                          {"I32", 4, Dtype::int32}, {"I64", 8, Dtype::int64},    {"F64", 8, Dtype::none},
                          {"I16", 2, Dtype::none},  {"I8", 1, Dtype::int8},      {"U64", 8, Dtype::none},
                          {"U32", 4, Dtype::none},  {"U16", 2, Dtype::none},     {"U8", 1, Dtype::none},
                          {"BOOL", 1, Dtype::none}, {"F8_E4M3", 1, Dtype::e4m3}, {"F8_E5M2", 1, Dtype::none}};

const Type* type_of(const std::string& name) {
  const auto* found = std::find_if(std::begin(types), std::end(types), [&](const Type& t) { return name == t.name; });
  return found == std::end(types) ? nullptr : found;
}

/// The names for an error message: enough to see what is there.
std::string listing(std::vector<std::string> names) {
  constexpr size_t most = 12;
  const size_t count = names.size();
  if (count > most) names.resize(most);
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return count > most ? fmt::format("{} and {} more", text, count - most) : text;
}

json parse_header(const Bytes& bytes, const std::string& file, size_t* data_begin) {
  if (bytes.size() < prefix) throw Failure(file + ": not a .safetensors file (shorter than 8 bytes)");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), prefix);
  if (length > longest_header || length > bytes.size() - prefix) {
    throw Failure(fmt::format("{}: the header's length is {} bytes, but the file has {}", file, length, bytes.size()));
  }
  const char* begin = reinterpret_cast<const char*>(bytes.data()) + prefix;
  json header = json::parse(begin, begin + length, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) throw Failure(file + ": the header is not a JSON object");
  *data_begin = prefix + length;
  return header;
}

bool is_size_list(const json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const json& item) { return item.is_number_unsigned(); });
}

}  // namespace

Safetensors Safetensors::parse(Bytes bytes, const std::string& file) {
  size_t data_begin = 0;
  const json header = parse_header(bytes, file, &data_begin);
  const size_t data_size = bytes.size() - data_begin;
  Safetensors result;
  result.file_ = file;
  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__") continue;
    const std::string where = fmt::format("{}: tensor '{}'", file, name);
    if (!info.is_object() || !info.contains("dtype") || !info["dtype"].is_string() || !info.contains("shape") ||
        !is_size_list(info["shape"]) || !info.contains("data_offsets") || !is_size_list(info["data_offsets"]) ||
        info["data_offsets"].size() != 2) {
      throw Failure(where + " needs dtype (a string), shape (sizes) and data_offsets (two offsets)");
    }
    Entry entry{info["dtype"].get<std::string>(), info["shape"].get<std::vector<int64_t>>(), 0, 0};
    const auto begin = info["data_offsets"][0].get<uint64_t>(), end = info["data_offsets"][1].get<uint64_t>();
    if (begin > end || end > data_size) {
      throw Failure(
          fmt::format("{} lies at bytes {} to {}, but the file has {} bytes of data", where, begin, end, data_size));
    }
    const Type* type = type_of(entry.dtype);
    const auto count = static_cast<uint64_t>(count_elements(entry.shape, where));
    if (type != nullptr && count * type->bytes != end - begin) {
      throw Failure(fmt::format("{}: the shape {} of {} needs {} bytes, its offsets hold {}", where,
                                to_string(entry.shape), entry.dtype, count * type->bytes, end - begin));
    }
    entry.begin = data_begin + begin;
    entry.end = data_begin + end;
    result.entries_.emplace(name, std::move(entry));
  }
  result.bytes_ = std::move(bytes);
  result.check_overlaps();
  return result;
}

Safetensors Safetensors::read(const std::string& path) { return parse(read_file(path), path); }

void Safetensors::check_overlaps() const {
  std::vector<std::pair<const Entry*, const std::string*>> order;
  for (const auto& [name, entry] : entries_) order.emplace_back(&entry, &name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i].first->begin < order[i - 1].first->end) {
      throw Failure(fmt::format("{}: tensors '{}' and '{}' overlap", file_, *order[i - 1].second, *order[i].second));
    }
  }
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

Array Safetensors::at(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    throw Failure(fmt::format("{}: there is no tensor '{}'; it has {}", file_, name, listing(names())));
  }
  const Entry& entry = found->second;
  const Type* type = type_of(entry.dtype);
  if (type == nullptr || type->dtype == Dtype::none) {
    throw Failure(
        fmt::format("{}: tensor '{}' is of type {}; F32, F16, BF16, I32 or I64 is needed", file_, name, entry.dtype));
  }
  const auto data = std::span(bytes_).subspan(entry.begin, entry.end - entry.begin);
  return {type->dtype, entry.shape, Bytes(data.begin(), data.end())};
}

Bytes format_safetensors(const std::map<std::string, Array>& arrays) {
  json header = json::object();
  size_t offset = 0;
  for (const auto& [name, array] : arrays) {
    const auto* type = std::find_if(std::begin(types), std::end(types), [dtype = array.dtype](const Type& t) {
      return t.dtype == dtype && dtype != Dtype::none;
    });
    if (type == std::end(types)) {
      throw Failure(fmt::format("{} can't be written as .safetensors", tandem::name(array.dtype)));
    }
    header[name] = {
        {"dtype", type->name}, {"shape", array.shape}, {"data_offsets", {offset, offset + array.bytes.size()}}};
    offset += array.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8
  Bytes bytes(prefix + text.size());
  const uint64_t length = text.size();
  std::memcpy(bytes.data(), &length, prefix);
  std::memcpy(bytes.data() + prefix, text.data(), text.size());
  for (const auto& [name, array] : arrays) bytes.insert(bytes.end(), array.bytes.begin(), array.bytes.end());
  return bytes;
}

void write_safetensors(const std::string& path, const std::map<std::string, Array>& arrays) {
  write_file(path, format_safetensors(arrays));
}

}  // namespace tandem::tools
