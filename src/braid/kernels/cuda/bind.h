#pragma once

#include <map>
#include <memory>
#include <string_view>

#include "braid/backend/cuda/kernel_table.h"
#include "braid/ops/rope.h"

// Shared by the files that bind ops to kernels.
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

// Zeroed memory for kernels' counts: launches of a stream with equal sizes run one after the other,
// and share a Scratch.
class Scratch {
 public:
  std::byte* get(const LaunchArgs& args, int64_t bytes);

 private:
  std::map<std::pair<Stream, int64_t>, std::unique_ptr<DeviceMemory>> memory_;
};

// A small weight (norm, bias) in another float dtype: a copy in device memory.
std::shared_ptr<DeviceMemory> row_as(const LaunchArgs& args, const TensorView& row, DType dtype);

// The rotation table for rope kernels, in device memory. `factors` is a weight there, or absent.
std::shared_ptr<DeviceMemory> turns_table(const LaunchArgs& args, const ops::RopeAttrs& attrs,
                                          const TensorView& factors);

}  // namespace braid::cuda
