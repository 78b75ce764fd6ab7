#pragma once

#include <string>
#include <vector>

#include "braid/backend/cpu/kernel_table.h"
#include "braid/kernels/cpu/isa.h"
#include "braid/tensor/quant.h"

// Shared by the files that bind ops to kernels.
namespace braid::cpu {

// A small weight (norm, bias) of any float dtype as f32; empty without a weight.
inline std::vector<float> widen(const TensorView& weight) {
  std::vector<float> row(weight.data ? static_cast<size_t>(weight.cols()) : 0);
  if (weight.data) dequantize_row(weight.dtype, weight.data, row.data(), weight.cols());
  return row;
}

// A kernel for `def` that needs no workspace.
inline Kernel simple_kernel(const OpDef& def, Isa isa,
                            BoundKernel (*bind)(const LaunchArgs& args, Isa isa)) {
  const std::string kernel_name = fmt::format("{}.{}", def.kind, name(isa));
  return {.info =
              [=](const Op&, TypeList, TypeList, int) {
                return KernelInfo{kernel_name, 0};
              },
          .bind = [=](const LaunchArgs& args) { return bind(args, isa); }};
}

}  // namespace braid::cpu
