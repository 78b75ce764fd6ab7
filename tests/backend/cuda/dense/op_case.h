#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/register.h"
#include "braid/tensor/quant.h"

// Kernels of any op against its scalar reference, through the kernel table.
namespace braid::cuda::test {

#define REQUIRE_DEVICE()                                                  \
  if (int count = 0; cudaGetDeviceCount(&count) != cudaSuccess || !count) \
  GTEST_SKIP() << "no CUDA device"

// One op on random operands; an input of rank 0 is absent.
struct OpCase {
  const OpDef* def = nullptr;
  Attrs attrs;
  std::vector<ValueType> in;
  double tolerance = 1e-5;  // of f32 outputs of about 1; rounding of others is added
  std::string kernel = {};  // that the catalogue has to name; empty: any
  // Kernels that keep a weight in another order do so by address: operands of other cases were
  // there.
  bool own_table = false;
  float magnitude = 1;                 // of floats
  std::vector<int32_t> integers = {};  // of the i32 input; empty: lengths of keys
  double absolute = 0;                 // added to what the tolerance allows, whatever the output
};

inline KernelTable make_table() {
  KernelTable made(device_info(0));
  add_cuda_kernels(made);
  return made;
}

inline const KernelTable& shared_table() {
  static const KernelTable all = make_table();
  return all;
}

// A tensor on the host and on the device, where an allocation of its own ends right behind it.
class Operand {
 public:
  explicit Operand(const ValueType& type)
      : type_(type),
        host_(static_cast<size_t>(make_view(nullptr, type.dtype, type.shape).bytes()),
              std::byte{0xff}),
        device_(0, std::max<int64_t>(std::ssize(host_), 1)) {}

  TensorView host() { return make_view(host_.data(), type_.dtype, type_.shape); }
  TensorView device() { return make_view(device_.data(), type_.dtype, type_.shape); }
  void upload() {
    check_cuda(cudaMemcpy(device_.data(), host_.data(), host_.size(), cudaMemcpyHostToDevice), "");
  }
  void download() {
    check_cuda(cudaMemcpy(host_.data(), device_.data(), host_.size(), cudaMemcpyDeviceToHost), "");
  }
  void poison() {
    check_cuda(cudaMemset(device_.data(), 0xff, static_cast<size_t>(device_.bytes())), "");
  }
  void fill(std::mt19937& random, float magnitude = 1) {
    if (type_.dtype == DType::i32) return fill_lengths(random);
    std::normal_distribution<float> normal(0, magnitude);
    std::vector<float> values(static_cast<size_t>(type_.shape.elems()));
    for (float& v : values) v = normal(random);
    quantize_row(type_.dtype, values.data(), host_.data(), std::ssize(values));
  }
  std::vector<float> values() {
    std::vector<float> out(static_cast<size_t>(type_.shape.elems()));
    dequantize_row(type_.dtype, host_.data(), out.data(), std::ssize(out));
    return out;
  }

 private:
  // Key lengths: the set includes 0 and a length above the number of keys.
  void fill_lengths(std::mt19937& random) {
    for (int64_t i = 0; i < type_.shape.elems(); ++i) {
      const int32_t n = i == 0 ? 0 : i == 1 ? 1000 : std::uniform_int_distribution(1, 9)(random);
      std::memcpy(host_.data() + i * 4, &n, sizeof(n));
    }
  }

  ValueType type_;
  std::vector<std::byte> host_;
  CudaMemory device_;
};

// Sums that differ in the last place may fall on both sides of a rounding: a step apart.
inline double rounding_step(DType dtype) {
  return dtype == DType::f32 ? 0 : dtype == DType::f16 ? 0x1.01p-10 : 0x1.01p-7;
}

// Runs the kernel twice, in a stream of its own and with early starts, and compares both.
inline void check(const OpCase& c, uint32_t seed) {
  SCOPED_TRACE(testing::Message() << c.def->kind << " {" << to_string(c.attrs) << "}, seed "
                                  << seed);
  std::mt19937 random(seed);
  const std::vector<ValueType> types = c.def->infer(c.attrs, c.in);
  std::vector<std::unique_ptr<Operand>> in, want, got;
  std::vector<TensorView> host_in, device_in, host_out, device_out;
  for (const ValueType& type : c.in) {
    in.push_back(std::make_unique<Operand>(type));
    const bool there = type.shape.rank() > 0;
    if (there && type.dtype == DType::i32 && !c.integers.empty()) {
      std::memcpy(in.back()->host().data, c.integers.data(), c.integers.size() * sizeof(int32_t));
      in.back()->upload();
    } else if (there) {
      in.back()->fill(random, c.magnitude), in.back()->upload();
    }
    host_in.push_back(there ? in.back()->host() : TensorView{});
    device_in.push_back(there ? in.back()->device() : TensorView{});
  }
  for (const ValueType& type : types) {
    want.push_back(std::make_unique<Operand>(type));
    got.push_back(std::make_unique<Operand>(type));
    host_out.push_back(want.back()->host());
    device_out.push_back(got.back()->device());
  }
  Op op{.def = c.def, .attrs = c.attrs};
  BatchPart part;
  c.def->reference({.op = &op, .in = host_in, .out = host_out, .part = &part});

  std::optional<KernelTable> own;
  if (c.own_table) own.emplace(make_table());
  const KernelTable& table = own ? *own : shared_table();
  const Kernel& kernel = table.at(c.def->kind);
  const KernelInfo info = kernel.info(op, c.in, types, table.device());
  if (!c.kernel.empty()) {
    EXPECT_EQ(info.name, c.kernel);
  }
  CudaMemory workspace(0, std::max<int64_t>(info.workspace_bytes, 64));
  check_cuda(cudaMemset(workspace.data(), 0xff, static_cast<size_t>(workspace.bytes())), "");
  const OpCall call{.op = &op, .in = device_in, .out = device_out, .part = &part};
  const BoundKernel bound =
      kernel.bind({.call = call, .workspace = workspace.data(), .device = table.device()});
  for (bool pdl : {false, true}) {
    for (auto& operand : got) operand->poison();
    check_cuda(cudaDeviceSynchronize(), "");
    bound({nullptr, pdl});
    check_cuda(cudaDeviceSynchronize(), c.def->kind.data());
    for (size_t i = 0; i < got.size(); ++i) {
      got[i]->download();
      const auto x = got[i]->values(), y = want[i]->values();
      const double rounding = rounding_step(types[i].dtype);
      double worst = 0;
      size_t at = 0, beyond = 0;
      for (size_t j = 0; j < x.size(); ++j) {
        const double allowed =
            c.absolute + c.tolerance * std::max(1.f, std::abs(y[j])) + rounding * std::abs(y[j]);
        const double away = std::abs(static_cast<double>(x[j]) - y[j]);
        const double ratio = away == 0 ? 0 : away / allowed;
        if (!(ratio <= 1)) ++beyond;
        if (!(ratio <= worst)) worst = std::isnan(ratio) ? INFINITY : ratio, at = j;
      }
      ASSERT_LE(worst, 1) << "output " << i << " at " << at << ": " << x[at] << ", wanted " << y[at]
                          << "; " << beyond << " of " << x.size()
                          << " numbers are beyond their bounds";
    }
  }
}

inline const ValueType kAbsent = {};

}  // namespace braid::cuda::test
