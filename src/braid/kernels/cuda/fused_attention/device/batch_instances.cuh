#pragma once

#include <cuda_fp16.h>

#include "braid/kernels/cuda/fused_attention/device/batch_kernel.cuh"
#include "braid/kernels/cuda/fused_attention/device/fused_kernels.h"

namespace braid::cuda {

template <int kD, class T, ExchangePath kPath, int kSets>
__global__ void __launch_bounds__(kFusedBlock, 1)
    fused_batch_kernel(const __grid_constant__ FusedArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) uint8_t batch_smem[];
  uint8_t* smem = batch_smem;
  const FusedBatchShape shape = batch_shape(a, kD);
  const FusedBatchLayout layout(shape);
  ptx::grid_launch_dependents();
  const int live = static_cast<int>(__ldg(a.rows));
  if (live == 0) return;
  auto* barriers = reinterpret_cast<uint64_t*>(smem + layout.barriers);
  auto* tokens = reinterpret_cast<FusedToken*>(smem + layout.tokens);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (warp == 0) put_tokens(a, live, relay_keys(kD), tokens);
  if (threadIdx.x < 2 * a.slots) ptx::mbarrier_init(barriers + threadIdx.x, 1);
  if (threadIdx.x == 0) *reinterpret_cast<volatile int*>(smem + layout.flow) = a.in_flight;
  ptx::fence_barrier_init();
  __syncthreads();
  const FusedBatchPlan plan(a, kD, tokens, live);
  using Exchange = ClusterExchange<kPath>;
  if (warp >= kFusedWarps) {
    Exchange::arrive();
    FusedBatchProducer<kD>(a, smem, layout, plan, warp - kFusedWarps).run();
    Exchange::open();
    return;
  }
  const uint32_t tag = __ldcg(a.control);
  FusedBatch<kD, T, kPath, kSets> block(a, smem, layout, shape, plan, live, tag);
  block.arrive();
  ptx::grid_dependency_wait();
  block.run();
  ptx::named_barrier_sync(1, kFusedThreads);
  leave_tag(a.control, tag + kFusedTags);
#endif
}

// kSets: sets of kFusedSetHeads query heads.
template <int kD, int kSets = 1>
FusedKernel fused_batch_kernel_of(DType cache, ExchangePath path) {
  constexpr auto kChip = ExchangePath::chip, kMemory = ExchangePath::memory;
  const bool chip = path == kChip;
  if (cache == DType::f16) {
    return chip ? fused_batch_kernel<kD, __half, kChip, kSets>
                : fused_batch_kernel<kD, __half, kMemory, kSets>;
  }
  return chip ? fused_batch_kernel<kD, __nv_bfloat16, kChip, kSets>
              : fused_batch_kernel<kD, __nv_bfloat16, kMemory, kSets>;
}

}  // namespace braid::cuda
