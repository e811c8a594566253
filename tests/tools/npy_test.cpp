// The .npy reader and writer, against files made here byte by byte as NumPy makes them.
#include "tools/io/npy.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/tools/support.hpp"
#include "tools/io/file.hpp"

namespace tandem::tools {
namespace {

Bytes npy(int version, const std::string& header, const std::string& data) {
  std::string text = "\x93NUMPY";
  text += {static_cast<char>(version), '\0'};
  const size_t length_bytes = version == 1 ? 2 : 4;
  for (size_t i = 0; i < length_bytes; ++i) text += static_cast<char>(header.size() >> (8 * i) & 0xff);
  text += header + data;
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}

Array parse(const Bytes& bytes) { return parse_npy(bytes, "x.npy"); }

TEST(Npy, ReadsEveryVersion) {
  for (const int version : {1, 2, 3}) {
    const Array array =
        parse(npy(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }   \n", raw<float>({1.5F, -2})));
    EXPECT_EQ(array.dtype, Dtype::fp32);
    EXPECT_EQ(array.shape, (std::vector<int64_t>{2, 1}));
    EXPECT_EQ(floats(array, "x"), (std::vector<float>{1.5F, -2}));
  }
}

TEST(Npy, ReadsEveryType) {
  const auto header = [](const char* descr) {
    return std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': (2,), }\n";
  };
  EXPECT_EQ(floats(parse(npy(1, header("<f8"), raw<double>({0.5, 3}))), "x"), (std::vector<float>{0.5F, 3}));
  EXPECT_EQ(floats(parse(npy(1, header("<f2"), raw<uint16_t>({0x3c00, 0xc000}))), "x"), (std::vector<float>{1, -2}));
  EXPECT_EQ(floats(parse(npy(1, header("<V2"), raw<uint16_t>({0x3f80, 0xc000}))), "x"), (std::vector<float>{1, -2}));
  EXPECT_EQ(integers(parse(npy(1, header("<i4"), raw<int32_t>({-1, 7}))), "x"), (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(integers(parse(npy(1, header("<i8"), raw<int64_t>({-1, 7}))), "x"), (std::vector<int64_t>{-1, 7}));
  expect_failure([&] { parse(npy(1, header(">f4"), raw<float>({1, 2}))); }, "big-endian");
  expect_failure([&] { parse(npy(1, header("|u1"), "ab")); }, "'|u1' aren't supported");
}

TEST(Npy, BringsFortranOrderIntoRowOrder) {
  const Array array =
      parse(npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}\n", raw<float>({0, 10, 1, 11, 2, 12})));
  EXPECT_EQ(floats(array, "x"), (std::vector<float>{0, 1, 2, 10, 11, 12}));
}

TEST(Npy, ReadsScalarsAndEmptyArrays) {
  EXPECT_EQ(parse(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}\n", raw<float>({4}))).shape.size(), 0U);
  EXPECT_TRUE(parse(npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (0, 5)}\n", "")).bytes.empty());
}

TEST(Npy, NamesWhatIsWrong) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\n";
  expect_failure([&] { parse({}); }, "x.npy: not a .npy file");
  expect_failure([&] { parse(npy(9, good, "")); }, "version 9");
  expect_failure([&] { parse(npy(1, good, raw<float>({1}))); }, "needs 8 bytes of data, the file has 4");
  expect_failure([&] { parse(npy(1, good, raw<float>({1, 2, 3}))); }, "the file has 12");
  Bytes cut = npy(1, good, "");
  cut.resize(30);
  expect_failure([&] { parse(cut); }, "truncated");
  expect_failure([&] { parse(npy(1, "{'descr': '<f4', 'shape': (2,)}", "")); }, "fortran_order");
  expect_failure([&] { parse(npy(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "")); },
                 "structured");
  expect_failure([&] { parse(npy(1, "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "")); }, "True nor False");
  expect_failure([&] { parse(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "")); }, "negative");
  expect_failure([&] { parse(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (9e9,)}", "")); }, "shape");
  expect_failure(
      [&] { parse(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "")); },
      "larger than any memory");
  expect_failure([&] { parse(npy(1, "{'a': '<f4'}", "")); }, "unknown key 'a'");
  expect_failure([&] { parse(npy(1, "{'descr': '<f4", "")); }, "doesn't end");
}

TEST(Npy, ReadsWhatItWrites) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16}) {
    const Array array = array_of({1, 2, 3, 4, 5, 6}, {3, 1, 2}, dtype);
    const Bytes bytes = format_npy(array);
    EXPECT_EQ((bytes.size() - array.bytes.size()) % 64, 0U) << "the data is not aligned";
    const Array back = parse(bytes);
    EXPECT_EQ(back.dtype, dtype);
    EXPECT_EQ(back.shape, array.shape);
    EXPECT_EQ(back.bytes, array.bytes);
  }
  EXPECT_EQ(parse(format_npy(array_of({1}, {1}))).shape, (std::vector<int64_t>{1}));
  EXPECT_EQ(parse(format_npy(array_of({1}, {}))).shape, (std::vector<int64_t>{}));
}

TEST(Npy, WritesBf16AsFloat) {
  const Array back = parse(format_npy(array_of({1.5F}, {1}, Dtype::bf16)));
  EXPECT_EQ(back.dtype, Dtype::fp32);
  EXPECT_EQ(floats(back, "x"), (std::vector<float>{1.5F}));
}

TEST(Npy, EightBitsAreWrittenAsIntegers) {
  const auto header_of = [](Dtype dtype) {
    const Bytes bytes = format_npy({dtype, {2}, Bytes{std::byte{0x7e}, std::byte{0x80}}});
    EXPECT_EQ(bytes.back(), std::byte{0x80});
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_NE(header_of(Dtype::e4m3).find("'|u1'"), std::string::npos);
  EXPECT_NE(header_of(Dtype::int8).find("'|i1'"), std::string::npos);
}

}  // namespace
}  // namespace tandem::tools
