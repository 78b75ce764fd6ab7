#include "braid/kernels/cuda/linear/device/panel.cuh"

namespace braid::cuda {

template void launch_panel<DType::q4_0>(const PanelArgs&, const LaunchContext&);
template void launch_panel<DType::q4_1>(const PanelArgs&, const LaunchContext&);
template void allow_panel_smem<DType::q4_0>();
template void allow_panel_smem<DType::q4_1>();

}  // namespace braid::cuda
