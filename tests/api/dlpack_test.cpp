// DLPack tensors as Tandem's views: dtypes, devices, strides, offsets, and what is refused.
#include "api/dlpack.hpp"

#include "support.hpp"

namespace tandem::testing {
namespace {

using internal::from_dlpack;

constexpr Code invalid = Code::invalid_argument;

struct Sample {
  int64_t shape[4] = {2, 3, 5, 8};
  int64_t strides[4] = {1000, 200, 8, 1};
  float data[8] = {};
  DLTensor tensor{data, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, strides, 0};
};

TEST(Dlpack, NullIsAbsent) {
  TensorView view;
  view.spec.dtype = Dtype::fp32;
  EXPECT_TRUE(from_dlpack("query", nullptr, view).ok());
  EXPECT_FALSE(view.present());
  EXPECT_EQ(view.data, nullptr);
}

TEST(Dlpack, SizesAndStrides) {
  Sample sample;
  TensorView view;
  ASSERT_TRUE(from_dlpack("query", &sample.tensor, view).ok());
  EXPECT_EQ(view.spec.rank, 4);
  EXPECT_EQ(view.spec.size[2], 5);
  EXPECT_EQ(view.spec.stride[0], 1000);
  EXPECT_EQ(view.data, sample.data);
}

TEST(Dlpack, NullStridesAreRowMajor) {
  Sample sample;
  sample.tensor.strides = nullptr;
  TensorSpec spec;
  ASSERT_TRUE(from_dlpack("query", &sample.tensor, spec).ok());
  const TensorSpec expected = contiguous(Dtype::fp32, cpu(), {2, 3, 5, 8});
  EXPECT_EQ(spec.stride, expected.stride);
}

TEST(Dlpack, ByteOffsetMovesTheData) {
  Sample sample;
  sample.tensor.byte_offset = 12;
  TensorView view;
  ASSERT_TRUE(from_dlpack("query", &sample.tensor, view).ok());
  EXPECT_EQ(view.data, sample.data + 3);
  sample.tensor.data = nullptr;
  ASSERT_TRUE(from_dlpack("query", &sample.tensor, view).ok());
  EXPECT_EQ(view.data, nullptr) << "null stays null, whatever the offset";
}

TEST(Dlpack, Dtypes) {
  const struct {
    int code, bits;
    Dtype dtype;
  } known[] = {{kDLFloat, 32, Dtype::fp32}, {kDLFloat, 16, Dtype::fp16}, {kDLBfloat, 16, Dtype::bf16},
               {10, 8, Dtype::e4m3},        {kDLInt, 8, Dtype::int8},    {kDLInt, 32, Dtype::int32},
               {kDLInt, 64, Dtype::int64}};
  Sample sample;
  TensorSpec spec;
  for (const auto& entry : known) {
    sample.tensor.dtype = {static_cast<uint8_t>(entry.code), static_cast<uint8_t>(entry.bits), 1};
    ASSERT_TRUE(from_dlpack("key", &sample.tensor, spec).ok());
    EXPECT_EQ(spec.dtype, entry.dtype);
  }
  for (const DLDataType unknown :
       {DLDataType{kDLFloat, 64, 1}, DLDataType{kDLUInt, 32, 1}, DLDataType{kDLBfloat, 32, 1}, DLDataType{200, 8, 1}}) {
    sample.tensor.dtype = unknown;
    expect_fault(from_dlpack("key", &sample.tensor, spec), invalid, "key", "dtype code");
  }
  sample.tensor.dtype = {kDLFloat, 32, 4};
  expect_fault(from_dlpack("key", &sample.tensor, spec), invalid, "key", "lanes 4");
}

TEST(Dlpack, Devices) {
  Sample sample;
  TensorSpec spec;
  const auto device = [&](DLDeviceType type, int id) {
    sample.tensor.device = {type, id};
    EXPECT_TRUE(from_dlpack("key", &sample.tensor, spec).ok());
    return spec.device;
  };
  EXPECT_EQ(device(kDLCPU, 0), cpu());
  EXPECT_EQ(device(kDLCUDAHost, 2), cpu());
  EXPECT_EQ(device(kDLCUDA, 2), cuda(2));
  EXPECT_EQ(device(kDLCUDAManaged, 1), cuda(1));
  sample.tensor.device = {kDLROCM, 0};
  expect_fault(from_dlpack("key", &sample.tensor, spec), invalid, "key", "device type 10");
}

TEST(Dlpack, Ranks) {
  Sample sample;
  TensorSpec spec;
  for (const int rank : {-1, 0, 6, 1000}) {
    sample.tensor.ndim = rank;
    expect_fault(from_dlpack("value", &sample.tensor, spec), invalid, "value", "ndim");
  }
  sample.tensor.ndim = 4;
  sample.tensor.shape = nullptr;
  expect_fault(from_dlpack("value", &sample.tensor, spec), invalid, "value", "null");
}

}  // namespace
}  // namespace tandem::testing
