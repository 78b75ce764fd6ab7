#include "braid/backend/cuda/tensor_map.h"

#include "braid/backend/cuda/driver_function.h"
#include "braid/base/error.h"

namespace braid::cuda {
namespace {

constexpr size_t kMaxRank = 5;

}  // namespace

CUtensorMap make_tensor_map(CUtensorMapDataType type, CUtensorMapSwizzle swizzle,
                            CUtensorMapL2promotion l2, const void* data,
                            std::span<const MapDim> dims, std::string_view what) {
  BRAID_CHECK(!dims.empty() && dims.size() <= kMaxRank, "a tensor map of rank {}", dims.size());
  cuuint64_t sizes[kMaxRank], strides[kMaxRank];
  cuuint32_t boxes[kMaxRank], steps[kMaxRank];
  for (size_t i = 0; i < dims.size(); ++i) {
    sizes[i] = static_cast<cuuint64_t>(dims[i].size);
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(dims[i].bytes);
    boxes[i] = static_cast<cuuint32_t>(dims[i].box);
    steps[i] = 1;
  }
  CUtensorMap map;
  static auto* const encode =
      driver_function<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  const CUresult result = encode(
      &map, type, static_cast<cuuint32_t>(dims.size()), const_cast<void*>(data), sizes, strides,
      boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, l2, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    fail(ErrorCode::kInvalidArgument, "no tensor map for {} (driver error {})", what,
         static_cast<int>(result));
  }
  return map;
}

}  // namespace braid::cuda
