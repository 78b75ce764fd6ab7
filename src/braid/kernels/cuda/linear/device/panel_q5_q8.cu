#include "braid/kernels/cuda/linear/device/panel.cuh"

namespace braid::cuda {

template void launch_panel<DType::q5_0>(const PanelArgs&, const LaunchContext&);
template void launch_panel<DType::q5_1>(const PanelArgs&, const LaunchContext&);
template void launch_panel<DType::q8_0>(const PanelArgs&, const LaunchContext&);
template void allow_panel_smem<DType::q5_0>();
template void allow_panel_smem<DType::q5_1>();
template void allow_panel_smem<DType::q8_0>();

}  // namespace braid::cuda
