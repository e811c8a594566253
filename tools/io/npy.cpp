// The .npy reader trusts nothing: every length is checked against the bytes that are there before it is used.
#include "tools/io/npy.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "tools/failure.hpp"
#include "tools/io/file.hpp"

namespace tandem::tools {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

struct Header {
  std::string descr;
  std::optional<bool> fortran;
  std::optional<std::vector<int64_t>> shape;
};

/// Reads the Python dictionary literal of a header: 'descr' a string, 'fortran_order' a bool, 'shape' a tuple.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Header parse() {
    Header header;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        header.descr = quoted();
      } else if (key == "fortran_order") {
        header.fortran = boolean();
      } else if (key == "shape") {
        header.shape = tuple();
      } else {
        fail(fmt::format("the header has an unknown key '{}'", key));
      }
      if (!accept(',') && peek() != '}') fail("the header's dictionary is malformed");
    }
    if (header.descr.empty()) fail("the header has no 'descr' (structured types aren't supported)");
    if (!header.fortran || !header.shape) fail("the header lacks 'fortran_order' or 'shape'");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Failure(fmt::format("{}: {}", file_, what)); }

  char peek() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
    return text_.empty() ? '\0' : text_[0];
  }
  bool accept(char c) {
    if (peek() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("the header is malformed: '{}' is missing", c));
  }
  bool accept_word(std::string_view word) {
    peek();
    if (text_.substr(0, word.size()) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"')
      fail("the header is malformed: a string is missing (structured types aren't supported)");
    const size_t end = text_.find(quote, 1);
    if (end == std::string_view::npos) fail("the header is malformed: a string doesn't end");
    std::string result(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return result;
  }
  bool boolean() {
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    fail("the header's 'fortran_order' is neither True nor False");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      peek();
      int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc()) fail("the header's 'shape' is not a tuple of integers");
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      sizes.push_back(size);
      if (!accept(',') && peek() != ')') fail("the header's 'shape' is malformed");
    }
    return sizes;
  }

  std::string_view text_;
  const std::string& file_;
};

struct Element {
  Dtype dtype;   // as kept in memory
  size_t bytes;  // as stored in the file
};

Element element_of(const std::string& descr, const std::string& file) {
  if (descr.size() >= 2 && descr[0] == '>') {
    throw Failure(fmt::format("{}: elements are big-endian ('{}'); save the array as little-endian", file, descr));
  }
  const std::string kind = descr.size() > 1 ? descr.substr(1) : "";
  if (kind == "f4") return {Dtype::fp32, 4};
  if (kind == "f2") return {Dtype::fp16, 2};
  if (kind == "f8") return {Dtype::fp32, 8};
  if (kind == "i4") return {Dtype::int32, 4};
  if (kind == "i8") return {Dtype::int64, 8};
  if (kind == "V2") return {Dtype::bf16, 2};
  throw Failure(fmt::format(
      "{}: elements of type '{}' aren't supported; float16, float32, float64, int32, int64 or bfloat16 is needed", file,
      descr));
}

Bytes narrowed(std::span<const std::byte> doubles) {
  Bytes result(doubles.size() / 2);
  for (size_t i = 0; i < doubles.size() / 8; ++i) {
    double wide;
    std::memcpy(&wide, doubles.data() + i * 8, 8);
    const float narrow = static_cast<float>(wide);
    std::memcpy(result.data() + i * 4, &narrow, 4);
  }
  return result;
}

/// Reorders column-major elements into row-major ones.
Bytes transposed(const Bytes& bytes, const std::vector<int64_t>& shape, size_t element) {
  Bytes result(bytes.size());
  std::vector<int64_t> index(shape.size(), 0);
  for (size_t to = 0; to < bytes.size(); to += element) {
    int64_t from = 0;
    for (size_t axis = shape.size(); axis-- > 0;) from = from * shape[axis] + index[axis];
    std::memcpy(result.data() + to, bytes.data() + static_cast<size_t>(from) * element, element);
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
  return result;
}

}  // namespace

Array parse_npy(std::span<const std::byte> bytes, const std::string& file) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (all.substr(0, magic.size()) != magic) throw Failure(file + ": not a .npy file (its first bytes are wrong)");
  if (all.size() < 10) throw Failure(file + ": the file is truncated within its header");
  const int version = static_cast<unsigned char>(all[6]);
  if (version < 1 || version > 3) throw Failure(fmt::format("{}: .npy version {} is not supported", file, version));
  const size_t prefix = version == 1 ? 10 : 12;
  size_t length = 0;
  for (size_t i = 8; i < prefix && i < all.size(); ++i) {
    length |= size_t{static_cast<unsigned char>(all[i])} << (8 * (i - 8));
  }
  if (all.size() < prefix || length > all.size() - prefix) {
    throw Failure(file + ": the file is truncated within its header");
  }
  const Header header = HeaderParser(all.substr(prefix, length), file).parse();
  const Element element = element_of(header.descr, file);
  const auto count = static_cast<size_t>(count_elements(*header.shape, file));
  const auto data = bytes.subspan(prefix + length);
  if (data.size() != count * element.bytes) {
    throw Failure(fmt::format("{}: the shape {} of '{}' needs {} bytes of data, the file has {}", file,
                              to_string(*header.shape), header.descr, count * element.bytes, data.size()));
  }
  Array array{element.dtype, *header.shape, {}};
  array.bytes = element.bytes == 8 && element.dtype == Dtype::fp32 ? narrowed(data) : Bytes(data.begin(), data.end());
  if (*header.fortran) array.bytes = transposed(array.bytes, array.shape, size_of(array.dtype));
  return array;
}

Array read_npy(const std::string& path) { return parse_npy(read_file(path), path); }

Bytes format_npy(const Array& array) {
  if (array.dtype == Dtype::bf16) return format_npy(convert(array, Dtype::fp32));
  const char* descr = array.dtype == Dtype::fp32    ? "<f4"
                      : array.dtype == Dtype::fp16  ? "<f2"
                      : array.dtype == Dtype::int32 ? "<i4"
                      : array.dtype == Dtype::int64 ? "<i8"
                      : array.dtype == Dtype::int8  ? "|i1"
                      : array.dtype == Dtype::e4m3  ? "|u1"
                                                    : nullptr;
  if (descr == nullptr) throw Failure(fmt::format("{} can't be written as .npy", name(array.dtype)));
  std::string shape;
  for (const int64_t size : array.shape) shape += fmt::format("{}, ", size);
  if (array.shape.size() > 1) shape.resize(shape.size() - 2);
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  text.resize((10 + text.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');  // the data begins at a multiple of 64
  text += '\n';
  std::string header(magic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  header += text;
  Bytes bytes(header.size() + array.bytes.size());
  std::memcpy(bytes.data(), header.data(), header.size());
  if (!array.bytes.empty()) std::memcpy(bytes.data() + header.size(), array.bytes.data(), array.bytes.size());
  return bytes;
}

void write_npy(const std::string& path, const Array& array) { write_file(path, format_npy(array)); }

}  // namespace tandem::tools
