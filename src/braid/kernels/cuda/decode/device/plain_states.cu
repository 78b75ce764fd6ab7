#include "braid/base/error.h"
#include "braid/kernels/cuda/decode/device/merge_states.cuh"
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

// The query and head of this warp.
__device__ int64_t warp_row() {
  return static_cast<int64_t>(blockIdx.x) * kPlainWarps +
         static_cast<int>(threadIdx.x) / kPlainLanes;
}

template <class Kernel, class... Args>
void launch_rows(LaunchContext context, Kernel kernel, int64_t rows, Args... args) {
  launch_kernel(context, kernel,
                dim3(static_cast<unsigned>((rows + kPlainWarps - 1) / kPlainWarps)),
                dim3(kPlainLanes * kPlainWarps), 0, args...);
}

template <class Out>
__global__ __launch_bounds__(kPlainLanes* kPlainWarps) void merge_states_kernel(
    const __grid_constant__ MergeArgs a, Out* out) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int64_t row = warp_row();
  if (row < merge_rows(a)) merge_row(a, row, out);
}

struct PackArgs {
  const float* sums;  // [parts, rows, D]
  const float* l;     // [parts, rows]
  const float* m;
  float* out;  // [rows, D + 2]
  int64_t rows;
  int D;
  int parts;
};

__global__ __launch_bounds__(kPlainLanes* kPlainWarps) void pack_states_kernel(
    const __grid_constant__ PackArgs a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int64_t row = warp_row();
  if (row >= a.rows) return;
  write_merged({.o = a.sums + row * a.D,
                .l = a.l + row,
                .m = a.m + row,
                .o_step = a.rows * a.D,
                .step = a.rows,
                .count = a.parts},
               a.D, false, a.out + row * (a.D + 2));
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
  const MergeArgs args = merge_args(p);
  const auto launch = [&]<class Out>(Out* out) {
    launch_rows(context, merge_states_kernel<Out>, int64_t{args.rows} * args.heads, args, out);
  };
  if (p.out.dtype == DType::f32) return launch(p.out.as<float>());
  launch(reinterpret_cast<__nv_bfloat16*>(p.out.data));
}

void pack_states(const PackStatesParams& p, LaunchContext context) {
  const PackArgs args = {.sums = p.sums.as<const float>(),
                         .l = p.l,
                         .m = p.m,
                         .out = p.out.as<float>(),
                         .rows = p.out.shape[1] * p.out.shape[2],
                         .D = static_cast<int>(p.sums.shape[3]),
                         .parts = p.parts};
  launch_rows(context, pack_states_kernel, args.rows, args);
}

}  // namespace braid::cuda
