// The .safetensors reader and writer.
#include "tools/io/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/tools/support.hpp"

namespace tandem::tools {
namespace {

Bytes file(const std::string& header, size_t data_bytes, int64_t length = -1) {
  const uint64_t stated = length < 0 ? header.size() : static_cast<uint64_t>(length);
  Bytes bytes(8 + header.size() + data_bytes);
  std::memcpy(bytes.data(), &stated, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

Safetensors parse(Bytes bytes) { return Safetensors::parse(std::move(bytes), "x.safetensors"); }

TEST(Safetensors, ReadsWhatItWrites) {
  const std::map<std::string, Array> arrays = {{"a.query", array_of({1, 2, 3, 4}, {2, 2}, Dtype::fp16)},
                                               {"b", array_of({5}, {1}, Dtype::bf16)},
                                               {"empty", array_of({}, {0, 3})},
                                               {"n", {Dtype::int64, {1}, Bytes(8, std::byte{1})}}};
  const auto back = parse(format_safetensors(arrays));
  EXPECT_EQ(back.names(), (std::vector<std::string>{"a.query", "b", "empty", "n"}));
  for (const auto& [name, array] : arrays) {
    EXPECT_EQ(back.at(name).dtype, array.dtype) << name;
    EXPECT_EQ(back.at(name).shape, array.shape) << name;
    EXPECT_EQ(back.at(name).bytes, array.bytes) << name;
  }
}

TEST(Safetensors, ReadsTheExample) {
  const auto example = Safetensors::read(TANDEM_EXAMPLE_DATA "/smollm2_layer18.safetensors");
  const Array query = example.at("layer18.query");
  EXPECT_EQ(query.dtype, Dtype::fp16);
  EXPECT_EQ(query.shape, (std::vector<int64_t>{1, 1024, 9, 64}));
  EXPECT_EQ(example.at("layer18.key").shape, (std::vector<int64_t>{1, 1024, 3, 64}));
}

TEST(Safetensors, NamesWhatIsWrong) {
  expect_failure([] { parse({}); }, "x.safetensors: not a .safetensors file");
  expect_failure([] { parse(file("{}", 0, 1000)); }, "header's length is 1000");
  expect_failure([] { parse(file("{}", 0, int64_t{1} << 62)); }, "header's length");
  expect_failure([] { parse(file("[]", 0)); }, "not a JSON object");
  expect_failure([] { parse(file("{\"a\":", 0)); }, "not a JSON object");
  expect_failure([] { parse(file(R"({"a":{"dtype":"F32","shape":[1]}})", 4)); }, "tensor 'a' needs");
  expect_failure([] { parse(file(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4)); },
                 "tensor 'a' needs");
  expect_failure([] { parse(file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3)); },
                 "lies at bytes 0 to 4, but the file has 3 bytes");
  expect_failure([] { parse(file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4)); }, "lies at");
  expect_failure([] { parse(file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4)); },
                 "needs 8 bytes, its offsets hold 4");
  expect_failure(
      [] {
        parse(file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                   8));
      },
      "tensors 'a' and 'b' overlap");
  expect_failure(
      [] { parse(file(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4)); },
      "larger than any memory");
}

TEST(Safetensors, ListsTensorsWhereOneIsMissing) {
  const auto some = parse(format_safetensors({{"left", array_of({1}, {1})}, {"right", array_of({2}, {1})}}));
  expect_failure([&] { some.at("middle"); }, "no tensor 'middle'; it has left, right");
}

TEST(Safetensors, MindsOtherTypesOnlyWhenAsked) {
  const auto some = parse(file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"__metadata__":{"k":"v"}})", 4));
  EXPECT_TRUE(some.has("a"));
  EXPECT_FALSE(some.has("__metadata__"));
  expect_failure([&] { some.at("a"); }, "of type U8");
}

}  // namespace
}  // namespace tandem::tools
