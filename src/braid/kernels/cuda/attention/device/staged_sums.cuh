#pragma once

#include "braid/kernels/cuda/attention/device/staging.cuh"

// Merges a staged item's sums with the carried state: by the multiplying warps, during the next
// item's first scores.
namespace braid::cuda {

template <class Traits>
class StagedSums {
  using Rows = StagedRows<Traits::kDv>;

 public:
  // Merges the carried state with the sums; the result takes the state's place in shared memory,
  // for the moving warp. `l` is this thread's part of the row sums, m2 the maxima in units of log2.
  __device__ __forceinline__ void leave(const AttentionPlan& plan, HopperSmem<Traits>& smem, int wg,
                                        int warp, int lane, float (&o)[Traits::kOutN / 2],
                                        float (&l)[2], float (&m2)[2]) {
    uint8_t* rows = smem.state[wg];
    float2* stats = smem.state_stats[wg] + warp * 16 + lane / 4;
    float keep[2] = {1.f, 1.f};
    float take[2] = {0.f, 0.f};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      l[r] += __shfl_xor_sync(0xffffffff, l[r], 1);
      l[r] += __shfl_xor_sync(0xffffffff, l[r], 2);
    }
    ptx::mbarrier_wait(&smem.state_full[wg], parity_);
    parity_ ^= 1;
    if (plan.load_state) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float2 carried = stats[8 * r];
        weigh(carried.x, m2[r], keep[r], take[r]);
        l[r] *= keep[r];
        if (take[r] > 0.f) l[r] = fmaf(take[r], carried.y, l[r]);
      }
      __syncwarp();
    }
    if (plan.finalize) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float gain = l[r] > 0.f ? ptx::reciprocal(l[r]) : 0.f;
        keep[r] *= gain;
        take[r] *= gain;
      }
      if (!plan.load_state) {
        Rows::template merge<float, false, false>(rows, warp, lane, o, keep, take);
      } else if (plan.state_bf16) {
        Rows::template merge<__nv_bfloat16, true, false>(rows, warp, lane, o, keep, take);
      } else {
        Rows::template merge<float, true, false>(rows, warp, lane, o, keep, take);
      }
      __syncwarp();  // 16-bit rows and 32-bit rows have different layouts
      Rows::template put16<typename Traits::T>(rows, warp, lane, o);
    } else if (plan.state_bf16) {
      if (plan.load_state) {
        Rows::template merge<__nv_bfloat16, true, true>(rows, warp, lane, o, keep, take);
      } else {
        Rows::template merge<__nv_bfloat16, false, true>(rows, warp, lane, o, keep, take);
      }
    } else if (plan.load_state) {
      Rows::template merge<float, true, true>(rows, warp, lane, o, keep, take);
    } else {
      Rows::template merge<float, false, true>(rows, warp, lane, o, keep, take);
    }
    if (lane % 4 == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float m = m2[r] == -INFINITY ? -INFINITY : m2[r] * kLn2;
        const float lse = l[r] > 0.f ? m + logf(l[r]) : -INFINITY;
        stats[8 * r] = make_float2(plan.finalize ? lse : m, l[r]);
      }
    }
    ptx::mbarrier_arrive(&smem.state_out[wg]);
  }

 private:
  // Weights for sums with maximum m2 (in units of log2) and for carried sums with m; m2 becomes the
  // maximum of both.
  __device__ __forceinline__ static void weigh(float m, float& m2, float& keep, float& take) {
    const float carried = m * ptx::kLog2E;
    const float top = fmaxf(m2, carried);
    keep = m2 == -INFINITY ? 0.f : ptx::exp2_approx(m2 - top);
    take = carried == -INFINITY ? 0.f : ptx::exp2_approx(carried - top);
    m2 = top;
  }

  uint32_t parity_ = 0;
};

}  // namespace braid::cuda
