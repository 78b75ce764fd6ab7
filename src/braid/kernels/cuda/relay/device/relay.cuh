#pragma once

#include <type_traits>

#include "braid/kernels/cuda/relay/device/attention.cuh"
#include "braid/kernels/cuda/relay/device/linear.cuh"
#include "braid/kernels/cuda/relay/device/producer.cuh"
#include "braid/kernels/cuda/relay/device/relay_kernel.h"

// The kernel: all steps of a relay, with a CTA on each SM. Two warps copy weights and keys into a
// ring of slots, ahead of the computation; eight warps take slots out. CTAs never meet: each word
// for other CTAs carries a tag, and readers poll the word until the tag matches.
namespace braid::cuda {

struct RelayNoAttention {
  __device__ RelayNoAttention(const RelayArgs&, uint8_t*, const RelayLayout&) {}
  __device__ void run(const RelayAttention&, const RelayPlace&, RelayRing&) {}
};

// Steps in shared memory for the multiplying warps, fetched a step ahead.
class RelaySteps {
 public:
  __device__ RelaySteps(const RelayArgs& a, uint8_t* smem, const RelayLayout& layout)
      : a_(a), steps_(reinterpret_cast<RelayStep*>(smem + layout.steps)) {
    fetch(0);
    arrive();
    sync_workers();
  }
  __device__ const RelayStep& at(int i) const { return steps_[i % kSteps]; }
  // Fetches step i into the place of a step that all warps have left.
  __device__ void fetch(int i) const {
    if (i < a_.num_steps && threadIdx.x < kWords) {
      ptx::cp_async_16(reinterpret_cast<uint4*>(steps_ + i % kSteps) + threadIdx.x,
                       reinterpret_cast<const uint4*>(a_.steps + i) + threadIdx.x, true);
    }
    ptx::cp_async_commit();
  }
  // After a meeting of all threads the fetched step is complete.
  __device__ void arrive() const { ptx::cp_async_wait<0>(); }

 private:
  static constexpr int kSteps = RelayLayout::kSteps;
  static constexpr int kWords = sizeof(RelayStep) / 16;
  const RelayArgs& a_;
  RelayStep* const steps_;
};

template <int kD, int kNorm, bool kRanked, bool kBlocks>
__global__ void __launch_bounds__(kRelayBlock, 1)
    relay_kernel(const __grid_constant__ RelayArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) uint8_t smem[];
  const RelayLayout layout(a.x_bytes, a.num_sums, a.slots);
  if (__ldg(a.rows) == 0) return;
  auto* barriers = reinterpret_cast<uint64_t*>(smem + layout.barriers);
  if (threadIdx.x < 2 * a.slots) ptx::mbarrier_init(barriers + threadIdx.x, 1);
  ptx::fence_barrier_init();
  const RelayFlow flow(a, smem, layout);
  flow.stream();
  __syncthreads();
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (warp >= kRelayWarps) {
    RelayProducer<kD, kBlocks>(a, smem, layout, warp - kRelayWarps).run();
    return;
  }
  const uint32_t tag = __ldcg(a.control);
  RelaySteps steps(a, smem, layout);
  RelayRing ring(a, smem, layout);
  RelayProduct<kNorm, kRanked, kBlocks> product(a, smem, layout);
  using Attend = std::conditional_t<(kD > 0), RelayAttend<(kD > 0 ? kD : 64)>, RelayNoAttention>;
  Attend attention(a, smem, layout);
  for (int i = 0; i < a.num_steps; ++i) {
    const RelayStep& step = steps.at(i);
    const RelayPlace place{a.mail[(i + kRelayMail - 1) % kRelayMail], tag + i,
                           a.mail[i % kRelayMail], tag + i + 1};
    steps.fetch(i + 1);
    if (step.attends) {
      attention.run(step.attention, place, ring);
      steps.arrive();
      sync_workers();
      continue;
    }
    product.plan(step.linear, ring);
    if (!step.linear.again) product.load(step.linear, place);
    sync_workers();
    flow.stream();
    product.multiply(step.linear, ring);
    steps.arrive();
    sync_workers();
    flow.make_way();
    product.finish(step.linear, place);
  }
  sync_workers();
  const bool last = leave_tag(a.control, tag + a.num_steps + 1);
  if (kRanked && last) a.control[2] = product.ranks().bank();
#endif
}

}  // namespace braid::cuda
