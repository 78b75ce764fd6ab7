#include "braid/backend/cuda/tensor_map.h"

#include "braid/backend/cuda/check.h"
#include "braid/base/error.h"

namespace braid::cuda {
namespace {

constexpr size_t kMaxRank = 5;

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode encoder() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                cudaEnableDefault, &found),
               "cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess) {
      fail(ErrorCode::kUnsupported, "the driver has no cuTensorMapEncodeTiled");
    }
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

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
  const CUresult result = encoder()(
      &map, type, static_cast<cuuint32_t>(dims.size()), const_cast<void*>(data), sizes, strides,
      boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, l2, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    fail(ErrorCode::kInvalidArgument, "no tensor map for {} (driver error {})", what,
         static_cast<int>(result));
  }
  return map;
}

}  // namespace braid::cuda
