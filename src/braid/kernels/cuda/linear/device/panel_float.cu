#include "braid/kernels/cuda/linear/device/panel.cuh"

namespace braid::cuda {

template void launch_panel<DType::bf16>(const PanelArgs&, const LaunchContext&);
template void launch_panel<DType::f16>(const PanelArgs&, const LaunchContext&);
template void allow_panel_smem<DType::bf16>();
template void allow_panel_smem<DType::f16>();

}  // namespace braid::cuda
