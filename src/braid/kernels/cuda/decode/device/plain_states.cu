#include "braid/base/error.h"
#include "braid/kernels/cuda/decode/device/plain.cuh"
#include "braid/kernels/cuda/decode/device/states.h"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

struct Args {
  const void* q;
  const void* k;
  const void* v;
  const int32_t* slots;
  const int32_t* rows;
  const int32_t* begin;
  const int32_t* end;
  float* out;
  float scale;
  float softcap;
  int row_slots;  // K
  int q_heads;
  int kv_heads;
  int group;
  int head_dim;
};

template <class Q, class C>
__global__ __launch_bounds__(kPlainLanes* kPlainWarps) void plain_states_kernel(
    const __grid_constant__ Args a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int lane = static_cast<int>(threadIdx.x) % kPlainLanes;
  const int t = static_cast<int>(blockIdx.x);
  const int head =
      static_cast<int>(blockIdx.y) * kPlainWarps + static_cast<int>(threadIdx.x) / kPlainLanes;
  if (head >= a.q_heads) return;
  const int D = a.head_dim;
  const int64_t row = static_cast<int64_t>(t) * a.q_heads + head;
  PlainQuery query;
#pragma unroll
  for (int i = 0; i < PlainQuery::kEach; ++i) {
    const int d = lane + i * kPlainLanes;
    query.q[i] = d < D ? to_float(static_cast<const Q*>(a.q)[row * D + d]) : 0.f;
    query.sum[i] = 0.f;
  }
  const int32_t* slots = a.slots + static_cast<int64_t>(a.rows[t]) * a.row_slots;
  for (int j = a.begin[t]; j < a.end[t]; ++j) {
    const int64_t key = (static_cast<int64_t>(slots[j]) * a.kv_heads + head / a.group) * D;
    float score = a.scale * query.dot(static_cast<const C*>(a.k) + key, D, lane);
    if (a.softcap > 0) score = a.softcap * tanhf(score / a.softcap);
    query.add(score, static_cast<const C*>(a.v) + key, D, lane);
  }
  float* out = a.out + row * (D + 2);
#pragma unroll
  for (int i = 0; i < PlainQuery::kEach; ++i) {
    const int d = lane + i * kPlainLanes;
    if (d < D) out[d] = query.sum[i];
  }
  if (lane == 0) out[D] = query.l;
  if (lane == 0) out[D + 1] = query.m;
}

template <class Q>
void launch_for_cache(const Args& args, int queries, DType cache, LaunchContext context) {
  const dim3 grid(static_cast<unsigned>(queries),
                  static_cast<unsigned>((args.q_heads + kPlainWarps - 1) / kPlainWarps));
  const auto launch = [&](auto kernel) {
    launch_kernel(context, kernel, grid, dim3(kPlainLanes * kPlainWarps), 0, args);
  };
  switch (cache) {
    case DType::f32:
      return launch(plain_states_kernel<Q, float>);
    case DType::f16:
      return launch(plain_states_kernel<Q, __half>);
    case DType::bf16:
      return launch(plain_states_kernel<Q, __nv_bfloat16>);
    default:
      fail(ErrorCode::kUnsupported, "attention states over a cache of {} (f32, f16, bf16)",
           name(cache));
  }
}

// A warp for each query and head.
template <class Out>
__global__ __launch_bounds__(kPlainLanes* kPlainWarps) void merge_states_kernel(
    const float* states, Out* out, const int64_t* queries, int rows, int heads, int D, int parts) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int lane = static_cast<int>(threadIdx.x) % kPlainLanes;
  const int warp = static_cast<int>(threadIdx.x) / kPlainLanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kPlainWarps + warp;
  const int64_t all = static_cast<int64_t>(rows) * heads;
  if (row >= min(all, static_cast<int64_t>(*queries) * heads)) return;
  const auto part = [&](int p) { return states + (p * all + row) * (D + 2); };
  float top = -INFINITY, total = 0;
  for (int p = 0; p < parts; ++p) top = fmaxf(top, __ldcg(part(p) + D + 1));
  for (int p = 0; p < parts; ++p) {
    const float m = __ldcg(part(p) + D + 1);
    if (m != -INFINITY) total += expf(m - top) * __ldcg(part(p) + D);
  }
  for (int d = lane; d < D; d += kPlainLanes) {
    float sum = 0;
    for (int p = 0; p < parts; ++p) {
      const float m = __ldcg(part(p) + D + 1);
      if (m != -INFINITY) sum += expf(m - top) * __ldcg(part(p) + d);
    }
    out[row * D + d] = Out(total > 0 ? sum / total : 0.f);
  }
}

}  // namespace

void plain_states(const StateParams& p, LaunchContext context) {
  const int64_t D = p.attrs.head_dim;
  if (D > kMaxPlainHeadDim) {
    fail(ErrorCode::kUnsupported, "attention states with head dim {} (at most {})", D,
         kMaxPlainHeadDim);
  }
  const Args args = {.q = p.q.data,
                     .k = p.k_cache.data,
                     .v = p.v_cache.data,
                     .slots = p.slots.as<const int32_t>(),
                     .rows = p.rows,
                     .begin = p.begin,
                     .end = p.end,
                     .out = p.out,
                     .scale = p.attrs.scale,
                     .softcap = p.attrs.softcap,
                     .row_slots = static_cast<int>(p.slots.cols()),
                     .q_heads = static_cast<int>(p.q.shape[2]),
                     .kv_heads = static_cast<int>(p.k_cache.shape[2]),
                     .group = static_cast<int>(p.attrs.group),
                     .head_dim = static_cast<int>(D)};
  const auto queries = static_cast<int>(p.q.shape[1]);
  switch (p.q.dtype) {
    case DType::f32:
      return launch_for_cache<float>(args, queries, p.k_cache.dtype, context);
    case DType::bf16:
      return launch_for_cache<__nv_bfloat16>(args, queries, p.k_cache.dtype, context);
    default:
      fail(ErrorCode::kUnsupported, "attention states of queries in {} (f32, bf16)",
           name(p.q.dtype));
  }
}

void merge_states(const MergeStatesParams& p, LaunchContext context) {
  const auto rows = static_cast<int>(p.states.shape[1] / p.parts);
  const auto heads = static_cast<int>(p.states.shape[2]);
  const auto D = static_cast<int>(p.states.shape[3] - 2);
  const auto launch = [&]<class Out>(Out* out) {
    launch_kernel(context, merge_states_kernel<Out>,
                  dim3(static_cast<unsigned>((rows * heads + kPlainWarps - 1) / kPlainWarps)),
                  dim3(kPlainLanes * kPlainWarps), 0, p.states.as<const float>(), out, p.queries,
                  rows, heads, D, p.parts);
  };
  if (p.out.dtype == DType::f32) return launch(p.out.as<float>());
  launch(reinterpret_cast<__nv_bfloat16*>(p.out.data));
}

}  // namespace braid::cuda
