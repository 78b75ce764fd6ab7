#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "braid/kernels/cuda/linear/device/panel_linear.h"
#include "braid/kernels/cuda/linear/device/skinny.h"
#include "braid/kernels/cuda/linear/device/stream_linear.h"

namespace braid::cuda::test {

bool has_device();
SkinnyDevice this_device();

// Device memory, freed with the object; `bytes` of it rounded up to whole 16 bytes.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  explicit DeviceBytes(size_t bytes);
  ~DeviceBytes();
  DeviceBytes(DeviceBytes&& other) noexcept;
  DeviceBytes& operator=(DeviceBytes&& other) noexcept;
  void upload(const void* from, size_t bytes) const;
  std::vector<uint8_t> download() const;
  void poison() const;  // NaN in every float type
  uint8_t* data = nullptr;
  size_t size = 0;
};

// n rows of k elements, `row_bytes` apart from `offset`: blocks of finite numbers around 1 /
// sqrt(k).
struct HostWeight {
  HostWeight(DType dtype, int n, int k, int64_t offset, int64_t row_gap, std::mt19937& rng);
  const uint8_t* row(int i) const { return bytes.data() + offset + i * row_bytes; }
  std::vector<float> row_values(int i) const;  // as the kernel multiplies them
  // Largest |f| * scale of the integers that stand for a row's elements beside the elements.
  double row_slack(int i) const;
  DType dtype;
  int n, k;
  int64_t offset, row_bytes;
  std::vector<uint8_t> bytes;
};

struct CaseSpec {
  DType dtype = DType::bf16;
  std::vector<int> n = {16};
  int k = 32;
  int m = 1;
  int live = -1;  // -1: no row count
  bool bias = false;
  DType x_dtype = DType::bf16;
  DType y_dtype = DType::bf16;
  int64_t x_gap = 0, y_gap = 0;     // elements between rows
  int64_t w_offset = 0, w_gap = 0;  // bytes
  bool gated = false;
  ops::Activation activation{};
  bool normed = false, norm_b = false, norm_sum = false;
  bool residual = false;
  int seed = 1;
};

std::string to_string(const CaseSpec& spec);

// One call with its data on host and device.
class Case {
 public:
  explicit Case(const CaseSpec& spec);
  const SkinnyParams& params() const { return params_; }
  // Poisons y, runs, and compares with f64: the worst element over its bound, or "".
  std::string run(const SkinnyConfig& config, bool pdl = false);
  std::string run(const StreamConfig& config, bool pdl = false);
  std::string run(const PanelConfig& config, bool pdl = false);
  std::vector<uint8_t> result() const;  // bytes of all y

 private:
  std::string check() const;
  void poison() const;
  void make_reference();
  CaseSpec spec_;
  std::vector<HostWeight> w_;
  std::vector<std::vector<float>> bias_;
  std::vector<float> x_, residual_, sum_;  // [m, k], [m, n]; sum_ = a + b
  std::vector<double> y_, bound_;          // [sum of n, m], with every epilogue
  SkinnyParams params_;
  std::vector<DeviceBytes> memory_, out_;
  DeviceBytes sum_out_;
};

}  // namespace braid::cuda::test
