#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "braid/backend/cuda/check.h"
#include "braid/base/math.h"
#include "braid/program/op.h"
#include "braid/tensor/quant.h"

// Tensors of the tests of pointwise kernels: bytes on the host, mirrored on the device in an
// allocation of their own, poisoned until they are filled.
namespace braid::cuda::test {

#define REQUIRE_DEVICE()                                                  \
  if (int count = 0; cudaGetDeviceCount(&count) != cudaSuccess || !count) \
  GTEST_SKIP() << "no CUDA device"

constexpr std::byte kPoison{0xff};  // NaN in each float type

class Tensor {
 public:
  Tensor() = default;
  // Rows are `gap` elements longer than the view shows; the first begins `skip` elements in.
  Tensor(DType dtype, Shape shape, int64_t gap = 0, int64_t skip = 0);
  ~Tensor() { cudaFree(device_); }
  Tensor(const Tensor&) = delete;

  TensorView host() { return {host_.data() + skip_, dtype_, shape_, row_bytes_}; }
  TensorView device() { return {device_ + skip_, dtype_, shape_, row_bytes_}; }

  Tensor& normal(std::mt19937& rng, float scale = 1);  // floats N(0, scale), blocks of such
  Tensor& integers(const std::vector<int32_t>& values);
  Tensor& upload();
  void download();
  void poison();  // host and device
  std::vector<std::byte>& bytes() { return host_; }
  std::vector<float> row(int64_t r);

  // The first element of the first `live` rows that is off by more than its tolerance, or a byte
  // elsewhere that is not poison any more. Empty: none.
  std::string compare(const TensorView& want, int64_t live,
                      const std::function<double(int64_t row, int64_t col)>& tolerance);

 private:
  DType dtype_ = DType::f32;
  Shape shape_;
  int64_t row_bytes_ = 0;
  int64_t skip_ = 0;
  std::vector<std::byte> host_;
  std::byte* device_ = nullptr;
};

// Relative error of rounding to nearest.
inline double rounding(DType dtype) {
  return dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
}

// One value in device memory.
template <class T>
class DeviceValue {
 public:
  explicit DeviceValue(const T& value) : DeviceValue(&value, 1) {}
  DeviceValue(const T* values, size_t count) {
    check_cuda(cudaMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T)), "test");
    check_cuda(cudaMemcpy(data_, values, count * sizeof(T), cudaMemcpyHostToDevice), "test");
  }
  ~DeviceValue() { cudaFree(data_); }
  DeviceValue(const DeviceValue&) = delete;
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

// The op's scalar reference on host views with `live` rows.
void reference(const OpDef& def, const Attrs& attrs, std::vector<TensorView> in,
               std::vector<TensorView> out, int64_t live);

}  // namespace braid::cuda::test
