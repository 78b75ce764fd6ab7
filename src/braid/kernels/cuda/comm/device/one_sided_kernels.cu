#include "braid/kernels/cuda/comm/device/one_sided_kernels.h"

#include "braid/kernels/cuda/comm/device/wait.cuh"

namespace braid::cuda {
namespace {

__device__ bool reached(const uint32_t* word, uint32_t value) {
  return static_cast<int32_t>(ptx::load_acquire_system(word) - value) >= 0;
}

// Meeting e: each rank stores e at all others and waits for e of each. Epochs only grow, and a rank
// is at e + 1 only after all were at e, so nobody is more than one ahead.
__global__ __launch_bounds__(32) void sync_kernel(const __grid_constant__ CommView view,
                                                  const __grid_constant__ SyncParams p) {
  if (p.early) ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int lane = threadIdx.x;
  for (int i = 0; i < p.num_opened; ++i) {
    for (int from = lane; from < p.counted; from += 32) {
      p.opened[i][from * kCounterWords] = 0;
    }
  }
  __threadfence_system();
  __syncwarp();
  const bool aborted = is_aborted(view);
  if (p.own != nullptr && !aborted) {
    const uint32_t epoch = p.own->epoch + 1;
    __syncwarp();
    if (lane == 0) p.own->epoch = epoch;
    if (lane < p.num_members) {
      ptx::store_release_system(p.flags[lane], epoch);
      const uint32_t* flag = &p.own->flags[p.members[lane]];
      wait_until(
          view, p.members[lane], epoch, [&] { return reached(flag, epoch); },
          [&] { return ptx::load_acquire_system(flag); });
    }
    __syncwarp();
  }
  if (p.arrivals != nullptr && lane < view.ranks && p.expected[lane] != 0 && !aborted) {
    const uint32_t* counter = p.arrivals + lane * kCounterWords;
    const uint32_t expected = p.expected[lane];
    wait_until(
        view, lane, expected, [&] { return reached(counter, expected); },
        [&] { return ptx::load_acquire_system(counter); });
  }
}

__device__ void ask(const TransferParams& p, int i) {
  ptx::store_release_system(p.asked[i], 1u);
}

__device__ bool wait_done(const CommView& view, const TransferParams& p, int i) {
  const bool done = wait_until(
      view, p.peers[i], 1, [&] { return reached(p.done[i], 1); },
      [&] { return ptx::load_acquire_system(p.done[i]); });
  if (done) ptx::store_relaxed_system(p.done[i], 0u);
  return done;
}

__global__ __launch_bounds__(32) void ask_kernel(const __grid_constant__ CommView view,
                                                 const __grid_constant__ TransferParams p) {
  ptx::grid_dependency_wait();
  const int lane = threadIdx.x;
  if (lane < p.n && !is_aborted(view)) ask(p, lane);
}

__global__ __launch_bounds__(32) void wait_kernel(const __grid_constant__ CommView view,
                                                  const __grid_constant__ TransferParams p) {
  ptx::grid_dependency_wait();
  const int lane = threadIdx.x;
  if (lane < p.n && !is_aborted(view)) wait_done(view, p, lane);
}

// A reader of the counter sees the data: this warp has seen `done`, which follows the transfers, or
// follows the storing kernels.
__global__ __launch_bounds__(32) void transfer_kernel(const __grid_constant__ CommView view,
                                                      const __grid_constant__ TransferParams p) {
  ptx::grid_dependency_wait();
  const int lane = threadIdx.x;
  if (lane >= p.n || is_aborted(view)) return;
  if (p.asked[lane] != nullptr) ask(p, lane);
  if (p.done[lane] != nullptr && !wait_done(view, p, lane)) return;
  if (p.arrivals[lane] == nullptr) return;
  __threadfence_system();
  atomicAdd_system(p.arrivals[lane], 1u);
}

}  // namespace

SyncKernel sync_kernel_of() {
  return sync_kernel;
}
TransferKernel ask_kernel_of() {
  return ask_kernel;
}
TransferKernel wait_kernel_of() {
  return wait_kernel;
}
TransferKernel transfer_kernel_of() {
  return transfer_kernel;
}

}  // namespace braid::cuda
