#include "braid/kernels/cuda/linear/device/panel.cuh"

namespace braid::cuda {

template void launch_panel<DType::q4_k>(const PanelArgs&, const LaunchContext&);
template void launch_panel<DType::q5_k>(const PanelArgs&, const LaunchContext&);
template void launch_panel<DType::q6_k>(const PanelArgs&, const LaunchContext&);
template void allow_panel_smem<DType::q4_k>();
template void allow_panel_smem<DType::q5_k>();
template void allow_panel_smem<DType::q6_k>();

}  // namespace braid::cuda
