#include <fmt/format.h>

#include "braid/backend/cuda/tensor_map.h"
#include "braid/kernels/cuda/linear/device/panel_args.h"

namespace braid::cuda {
namespace {

// Rows with 16-bit elements in slabs of 64.
CUtensorMap slabs_map(DType dtype, const void* data, int64_t rows, int64_t row_bytes, int64_t k,
                      int box_rows, int box_slabs) {
  // The next copy reads the memory behind a row's single slab. x is read again; measured so.
  const auto l2 = box_slabs == 1 ? kMapWide : kMapNarrow;
  const MapDim dims[] = {{kPanelXSlab, 0, kPanelXSlab},
                         {rows, row_bytes, box_rows},
                         {k / kPanelXSlab, kPanelXSlab * 2, box_slabs}};
  return make_tensor_map(
      dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      CU_TENSOR_MAP_SWIZZLE_128B, l2, data, dims, fmt::format("a linear's {} x {}", rows, k));
}

}  // namespace

void make_panel_maps(const SkinnyParams& p, const PanelConfig& config, PanelMaps& maps) {
  const int box_rows = config.groups * (p.gated ? 8 : 16);
  const PanelSlab slab = panel_slab(p.parts[0].dtype);
  for (int i = 0; i < p.num_parts; ++i) {
    const SkinnyPart& part = p.parts[i];
    if (is_quantized(part.dtype)) {
      const MapDim dims[] = {{bytes_of(part.dtype, p.k) / 2, 0, slab.pitch / 2},
                             {part.n, part.row_bytes, box_rows}};
      maps.w[i] =
          make_tensor_map(CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_SWIZZLE_NONE, kMapNarrow,
                          part.w, dims, fmt::format("a linear's {} x {}", part.n, p.k));
    } else {
      maps.w[i] =
          slabs_map(part.dtype, part.w, part.n, part.row_bytes, p.k, box_rows, config.slabs);
    }
  }
  maps.x = slabs_map(DType::bf16, p.x, p.m, p.x_stride * 2, p.k, 8 * panel_tiles(p.m),
                     config.slabs * slab.elems / kPanelXSlab);
}

}  // namespace braid::cuda
