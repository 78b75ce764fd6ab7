#include "braid/kernels/cuda/linear/device/panel_linear.h"

#include "braid/base/math.h"
#include "braid/kernels/cuda/linear/device/panel_args.h"
#include "braid/kernels/cuda/linear/device/with_dtype.h"
#include "braid/ops/linear.h"

namespace braid::cuda {
namespace {

// f.operator()<dtype>() for a dtype of the kernel.
template <class F>
void with_panel_dtype(DType dtype, F&& f) {
  with_dtype(dtype, [&]<DType kType>() {
    if constexpr (panel_slab(kType).elems > 0) f.template operator()<kType>();
  });
}

}  // namespace

PanelShape panel_shape(const SkinnyParams& p) {
  PanelShape shape{.dtype = p.parts[0].dtype, .normed = p.normed, .k = p.k, .tokens = p.m};
  for (int i = 0; i < p.num_parts; ++i) {
    const SkinnyPart& part = p.parts[i];
    if (!p.gated || i == 0) shape.groups[i] = panel_groups(part.n, p.gated);
    shape.aligned = shape.aligned && part.dtype == shape.dtype && part.row_bytes % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(part.w) % 16 == 0;
  }
  shape.aligned = shape.aligned && p.x_dtype == DType::bf16 && p.x_stride % 8 == 0 &&
                  reinterpret_cast<uintptr_t>(p.x) % 16 == 0;
  return shape;
}

void prepare_panel_linear() {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (panel_slab(dtype).elems == 0) continue;
    with_panel_dtype(dtype, []<DType kType>() { allow_panel_smem<kType>(); });
  }
}

void panel_linear(const SkinnyParams& params, const PanelConfig& config, LaunchContext context) {
  const PanelShape shape = panel_shape(params);
  BRAID_CHECK(panel_takes(shape, {}) && panel_fits(shape, config, {}), "{} of K = {}",
              to_string(config), shape.k);
  PanelArgs args{.maps = {},
                 .p = params,
                 .config = config,
                 .smem = panel_smem(shape, config),
                 .clusters = static_cast<int>(panel_clusters(shape, config)),
                 .k_stages = static_cast<int>(panel_k_stages(shape, config.slabs)),
                 .gelu = params.activation == ops::Activation::gelu_tanh};
  for (int i = 0; i < 3; ++i) {
    args.panels[i] = static_cast<int>(ceil_div(shape.groups[i], config.groups));
  }
  make_panel_maps(params, config, args.maps);
  with_panel_dtype(shape.dtype, [&]<DType kType>() { launch_panel<kType>(args, context); });
}

}  // namespace braid::cuda
