#include "braid/kernels/cuda/comm/device/handover.h"
#include "braid/kernels/cuda/comm/device/one_sided_kernels.h"
#include "braid/kernels/cuda/comm/device/store_pieces.cuh"
#include "braid/kernels/cuda/decode/device/merge_states.cuh"

namespace braid::cuda {
namespace {

constexpr int kWarps = kHandoverThreads / 32;

// The last share of what a peer waits for tells the peer.
__device__ void end_share(const CommView& view, const HandoverParams& p, int peer) {
  if (p.shares[peer] > 1) {
    if (atomicAdd(p.push.ended + peer, 1u) + 1 < p.shares[peer]) return;
    p.push.ended[peer] = 0;
    __threadfence_system();
  }
  if (!is_aborted(view)) atomicAdd_system(p.push.arrivals[peer], 1u);
}

// CTAs deal pieces by turns, and CTAs of a piece share its words.
__device__ void store_rows(const CommView& view, const HandoverParams& p, bool aborted) {
  const int cta = static_cast<int>(blockIdx.x), pieces = p.push.num_pieces;
  if (cta >= p.pushers) return;
  for (int i = cta % pieces; i < pieces && !aborted; i += p.pushers) {
    const int turns = shares_of_piece(i, pieces, p.pushers);
    store_piece(p.push.pieces[i], cta / pieces * kHandoverThreads + threadIdx.x,
                turns * kHandoverThreads);
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  __threadfence_system();  // for the stores of all threads, which the barrier has ordered
  for (int i = cta % pieces; i < pieces; i += p.pushers) {
    end_share(view, p, p.peer[i]);
    if (p.own >= 0 && p.peer[i] != p.own) end_share(view, p, p.own);
  }
}

// False where rows have not come in time.
__device__ bool wait_for_rows(const CommView& view, const HandoverParams& p) {
  bool come = true;
  const int from = static_cast<int>(threadIdx.x);
  if (from < view.ranks && p.expected[from] != 0) {
    come = wait_flag(view, from, p.arrivals + from * kCounterWords, p.expected[from]);
  }
  return __syncthreads_and(come);
}

template <class Out>
struct Merge {
  MergeArgs args;
  Out* out;

  // A rank's own states have not travelled, and their results lie apart from what is pushed.
  __device__ bool waits() const {
    return args.own == nullptr || static_cast<int>(blockIdx.x) * kWarps < args.merged * args.heads;
  }
  __device__ void operator()(int warp, int warps) const {
    const int64_t rows = merge_rows(args);
    for (int64_t row = warp; row < rows; row += warps) merge_row(args, row, out);
  }
};

struct Keep {
  KeepRowsArgs args;

  __device__ bool waits() const { return true; }
  __device__ void operator()(int warp, int warps) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int i = warp; i < 2 * args.rows; i += warps) {
      const int row = i / 2;
      const int64_t slot = args.at[row];
      if (slot < 0 || slot >= args.slots) continue;
      const uint4* from = args.from[i % 2] + int64_t{row} * args.words;
      uint4* to = args.to[i % 2] + slot * args.words;
      for (int w = lane; w < args.words; w += 32) to[w] = __ldcg(from + w);
    }
  }
};

template <class Last>
__global__ __launch_bounds__(kHandoverThreads) void handover_kernel(
    const __grid_constant__ CommView view, const __grid_constant__ HandoverParams p,
    const __grid_constant__ Last last) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const bool aborted = is_aborted(view);
  store_rows(view, p, aborted);
  if (aborted || (last.waits() && !wait_for_rows(view, p))) return;
  last(static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32,
       static_cast<int>(gridDim.x) * kWarps);
}

template <class Last>
void launch(const CommView& view, const HandoverParams& p, int ctas, const Last& last,
            const LaunchContext& context) {
  launch_kernel(context, handover_kernel<Last>, dim3(ctas), dim3(kHandoverThreads), 0, view, p,
                last);
}

}  // namespace

void load_handovers() {
  load_kernel(handover_kernel<Merge<float>>);
  load_kernel(handover_kernel<Merge<__nv_bfloat16>>);
  load_kernel(handover_kernel<Keep>);
}

void hand_over_and_merge(const CommView& view, const HandoverParams& p, int ctas,
                         const MergeStatesParams& merge, LaunchContext context) {
  const MergeArgs args = merge_args(merge);
  if (merge.out.dtype == DType::f32) {
    return launch(view, p, ctas, Merge<float>{args, merge.out.as<float>()}, context);
  }
  launch(view, p, ctas,
         Merge<__nv_bfloat16>{args, reinterpret_cast<__nv_bfloat16*>(merge.out.data)}, context);
}

void hand_over_and_keep(const CommView& view, const HandoverParams& p, int ctas,
                        const KeepRowsArgs& keep, LaunchContext context) {
  launch(view, p, ctas, Keep{keep}, context);
}

}  // namespace braid::cuda
