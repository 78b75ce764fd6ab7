#include "braid/kernels/cuda/comm/device/push_rows.h"

#include "braid/kernels/cuda/comm/device/store_pieces.cuh"

namespace braid::cuda {
namespace {

// What a CTA copies: every step-th piece from `first` on, of which it is the CTA `cta` of `ctas`.
struct Share {
  int first, step;
  uint32_t cta, ctas;
};

__device__ Share share_of_cta(int pieces) {
  const auto all = gridDim.x;
  const bool by_piece = static_cast<int>(all) <= pieces;
  return by_piece ? Share{static_cast<int>(blockIdx.x), static_cast<int>(all), 0, 1}
                  : Share{0, 1, blockIdx.x, all};
}

__global__ __launch_bounds__(kPushThreads) void push_rows_kernel(
    const __grid_constant__ CommView view, const __grid_constant__ PushRowsParams p) {
  if (p.early) ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  if (!is_aborted(view)) {
    const Share share = share_of_cta(p.num_pieces);
    for (int i = share.first; i < p.num_pieces; i += share.step) {
      store_piece(p.pieces[i], share.cta * kPushThreads + threadIdx.x, share.ctas * kPushThreads);
    }
  }
  end_stores(view, p);
}

}  // namespace

PushRowsKernel push_rows_kernel_of() {
  return push_rows_kernel;
}

}  // namespace braid::cuda
