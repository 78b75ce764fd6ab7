#include "braid/base/error.h"
#include "braid/kernels/cuda/linear/device/panel_args.h"

namespace braid::cuda {
namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

Encode encoder() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                cudaEnableDefault, &found),
               "linear: cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess) {
      fail(ErrorCode::kUnsupported, "linear: the driver has no cuTensorMapEncodeTiled");
    }
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

struct Dim {
  int64_t size;
  int64_t stride_bytes;  // of dimension 0: unused
  int box;
};

template <size_t kRank>
void encode(CUtensorMap* map, CUtensorMapDataType type, CUtensorMapSwizzle swizzle,
            const void* data, const Dim (&dims)[kRank]) {
  cuuint64_t sizes[kRank], strides[kRank];
  cuuint32_t boxes[kRank], steps[kRank];
  for (size_t i = 0; i < kRank; ++i) {
    sizes[i] = static_cast<cuuint64_t>(dims[i].size);
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(dims[i].stride_bytes);
    boxes[i] = static_cast<cuuint32_t>(dims[i].box);
    steps[i] = 1;
  }
  const CUresult result =
      encoder()(map, type, kRank, const_cast<void*>(data), sizes, strides, boxes, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    fail(ErrorCode::kInvalidArgument, "linear: no tensor map for {} x {} (driver error {})",
         dims[1].size, dims[0].size, static_cast<int>(result));
  }
}

// Rows of 16-bit elements in slabs of 64.
void encode_slabs(CUtensorMap* map, DType dtype, const void* data, int64_t rows, int64_t row_bytes,
                  int64_t k, int box_rows, int box_slabs) {
  encode(map,
         dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
         CU_TENSOR_MAP_SWIZZLE_128B, data,
         {{kPanelXSlab, 0, kPanelXSlab},
          {rows, row_bytes, box_rows},
          {k / kPanelXSlab, kPanelXSlab * 2, box_slabs}});
}

}  // namespace

void make_panel_maps(const SkinnyParams& p, const PanelConfig& config, PanelMaps& maps) {
  const int box_rows = config.groups * (p.gated ? 8 : 16);
  const PanelSlab slab = panel_slab(p.parts[0].dtype);
  for (int i = 0; i < p.num_parts; ++i) {
    const SkinnyPart& part = p.parts[i];
    if (is_quantized(part.dtype)) {
      encode(
          &maps.w[i], CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_SWIZZLE_NONE, part.w,
          {{bytes_of(part.dtype, p.k) / 2, 0, slab.pitch / 2}, {part.n, part.row_bytes, box_rows}});
    } else {
      encode_slabs(&maps.w[i], part.dtype, part.w, part.n, part.row_bytes, p.k, box_rows,
                   config.slabs);
    }
  }
  encode_slabs(&maps.x, DType::bf16, p.x, p.m, p.x_stride * 2, p.k, 8 * panel_tiles(p.m),
               config.slabs * slab.elems / kPanelXSlab);
}

}  // namespace braid::cuda
