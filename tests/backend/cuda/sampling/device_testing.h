#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "braid/backend/cuda/check.h"

namespace braid::cuda::test {

inline bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

#define REQUIRE_DEVICE() \
  if (!has_device()) GTEST_SKIP() << "no CUDA device"

// [n] elements of device memory, at first all bytes 0xa5.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t n) : n_(n) {
    check_cuda(cudaMalloc(&data_, bytes()), "test memory");
    check_cuda(cudaMemset(data_, 0xa5, bytes()), "test memory");
    check_cuda(cudaStreamSynchronize(nullptr), "test memory");  // other streams do not wait for it
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { set(values); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  void set(std::span<const T> values, size_t at = 0) {
    check_cuda(cudaMemcpy(data_ + at, values.data(), values.size_bytes(), cudaMemcpyHostToDevice),
               "test copy");
  }
  std::vector<T> get() const {
    std::vector<T> values(n_);
    check_cuda(cudaMemcpy(values.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost),
               "test copy");
    return values;
  }

 private:
  size_t bytes() const { return (n_ > 0 ? n_ : 1) * sizeof(T); }
  size_t n_;
  T* data_ = nullptr;
};

template <class T>
T poison() {
  T x;
  std::memset(&x, 0xa5, sizeof(T));
  return x;
}

}  // namespace braid::cuda::test
