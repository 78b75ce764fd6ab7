#pragma once

#include <memory>
#include <string_view>

#include "braid/backend/cuda/kernel_table.h"

// What the files that bind ops to kernels share.
namespace braid::cuda {

// A kernel that needs no workspace and goes by the op's name.
inline Kernel simple_kernel(std::string_view kind, BoundKernel (*bind)(const LaunchArgs& args)) {
  return {
      .info =
          [name = fmt::format("{}.cuda", kind)](const Op&, TypeList, TypeList, const DeviceInfo&) {
            return KernelInfo{name, 0};
          },
      .bind = bind};
}

// A small weight (norm, bias) in another float dtype: a copy in device memory.
std::shared_ptr<DeviceMemory> row_as(const LaunchArgs& args, const TensorView& row, DType dtype);

}  // namespace braid::cuda
