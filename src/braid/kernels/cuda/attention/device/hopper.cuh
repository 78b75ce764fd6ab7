#pragma once

#include "braid/kernels/cuda/attention/device/hopper_consumer.cuh"
#include "braid/kernels/cuda/attention/device/hopper_producer.cuh"
#include "braid/kernels/cuda/attention/device/staging.cuh"

// Segment attention on Hopper's own units; docs/kernels.md draws the pipeline. One producer warp
// walks work items and key tiles and feeds shared memory by bulk tensor copies; consumer
// warpgroups of 64 rows each multiply with wgmma and take turns at the tensor cores.
namespace braid::cuda {

template <class Traits>
__global__ __launch_bounds__(Traits::kThreads, Traits::kCtasPerSm) void hopper_attention(
    const __grid_constant__ HopperParams p) {
  extern __shared__ __align__(1024) uint8_t smem_bytes[];
  auto& smem = *reinterpret_cast<HopperSmem<Traits>*>(smem_bytes);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    if (ptx::smem_address(smem_bytes) % 1024 != 0) __trap();
    constexpr int kWarps = 4 * Traits::kConsumers;
    constexpr int kReaders = kWarps * Traits::kCluster;
    for (int i = 0; i < Traits::kQStages; ++i) {
      for (int w = 0; w < Traits::kConsumers; ++w) {
        ptx::mbarrier_init(&smem.q_full[i][w], 1);
        ptx::mbarrier_init(&smem.q_empty[i][w], 4);
      }
    }
    for (int i = 0; i < Traits::kKvStages; ++i) {
      ptx::mbarrier_init(&smem.k_full[i], 1);
      ptx::mbarrier_init(&smem.k_empty[i], kReaders);
      ptx::mbarrier_init(&smem.v_full[i], 1);
      ptx::mbarrier_init(&smem.v_empty[i], kReaders);
    }
    for (int i = 0; i < HopperSmem<Traits>::kWorkSlots; ++i) {
      ptx::mbarrier_init(&smem.work_full[i], 1);
      ptx::mbarrier_init(&smem.work_empty[i], kWarps + (Traits::kStaged ? Traits::kConsumers : 0));
    }
    ptx::mbarrier_init(&smem.scrub, 1);
    if (Traits::kArrives && Traits::kCluster > 1) {
      for (int i = 0; i < 2; ++i) {
        ptx::mbarrier_init(&smem.told_full[i], 1);
        ptx::mbarrier_init(&smem.told_empty[i], 1);
      }
    }
    if (Traits::kStaged) {
      for (int w = 0; w < Traits::kConsumers; ++w) {
        ptx::mbarrier_init(&smem.state_full[w], 32);
        ptx::mbarrier_init(&smem.state_out[w], 128);
      }
    }
    ptx::fence_barrier_init();
  }
  if constexpr (Traits::kOnes) {
    const uint32_t one = ptx::pack<typename Traits::T>(1.f, 1.f);
    for (int i = threadIdx.x; i < 2048 / 4; i += Traits::kThreads) {
      reinterpret_cast<uint32_t*>(smem.ones)[i] = one;
    }
    ptx::fence_proxy_async();
  }
  if (Traits::kCluster > 1) {
    ptx::cluster_sync();
  } else {
    __syncthreads();
  }
  if (warp < 4) {
    ptx::set_max_registers_down<Traits::kProducerRegisters>();
    if (warp == 0) {
      HopperProducer<Traits>(p, smem).run();
    } else if constexpr (Traits::kStaged) {
      if (warp <= Traits::kConsumers) HopperMover<Traits>(p, smem, warp - 1).run();
    }
    __syncwarp();
    if (Traits::kSplit && ptx::cluster_size() > 1) {
      __syncwarp();
      ptx::cluster_sync();
    }
  } else {
    ptx::set_max_registers_up<Traits::kConsumerRegisters>();
    ptx::grid_dependency_wait();
    HopperConsumer<Traits> consumer(p, smem, warp / 4 - 1);
    consumer.run();
    if (Traits::kSplit && ptx::cluster_size() > 1) {
      __syncwarp();
      ptx::cluster_sync();
      consumer.merge();
      __syncwarp();
    }
  }
  // No CTA leaves while another may still read or write its memory.
  if (Traits::kCluster > 1 || Traits::kSplit) ptx::cluster_sync();
}

template <DType kDType, int kVariant>
void launch_hopper(const HopperParams& params, int split, int num_sms, cudaStream_t stream) {
  using Traits = HopperTraits<DeviceType<kDType>, kVariant>;
  constexpr int kBytes = sizeof(HopperSmem<Traits>);
  static_assert(kBytes <= 232448 / Traits::kCtasPerSm - (Traits::kCtasPerSm > 1 ? 1024 : 0));
  auto* kernel = hopper_attention<Traits>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "hopper attention: shared memory");
  const int cluster = Traits::kSplit ? split : Traits::kCluster;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t launch{};
  launch.gridDim = Traits::kSplit ? split * params.plan.num_items
                                  : cluster * min_i(params.plan.num_items,
                                                    num_sms * Traits::kCtasPerSm / cluster);
  launch.blockDim = Traits::kThreads;
  launch.dynamicSmemBytes = kBytes;
  launch.stream = stream;
  launch.attrs = attributes;
  launch.numAttrs = cluster > 1 ? 2 : 1;
  check_cuda(cudaLaunchKernelEx(&launch, kernel, params), "hopper attention: launch");
}

}  // namespace braid::cuda
