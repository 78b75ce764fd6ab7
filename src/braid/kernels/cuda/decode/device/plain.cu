#include "braid/base/error.h"
#include "braid/kernels/cuda/decode/device/plain.cuh"
#include "braid/kernels/cuda/dual_chunks/device/turn_query.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

struct Args {
  const void* q;
  const void* k;
  const void* v;
  const int32_t* q_start;
  const int32_t* kv_len;
  const int32_t* page_table;
  const int64_t* sequences;
  void* out;
  ops::AttentionAttrs attrs;
  DualTurns dual;
  int tokens;  // capacity
  int q_heads;
  int kv_heads;
  int page_size;
  int table_stride;
};

// Turns the query for keys of `chunk`, from the query [D] in memory on.
template <class Q>
__device__ void meet(const DualTurns& dual, const Q* q, int D, int lane, int position, int chunk,
                     PlainQuery& query) {
  const int64_t by = moves(dual, position, chunk);
  const float gain = growth(dual, position);
#pragma unroll
  for (int i = 0; i < PlainQuery::kEach; ++i) {
    const int d = lane + i * kPlainLanes;
    if (d >= D) continue;
    float x = to_float(q[d]);
    if (d < 2 * dual.pairs && by != 0) {
      const int pair = dual.interleaved ? d / 2 : d < dual.pairs ? d : d - dual.pairs;
      const int2 columns = columns_of(dual, pair);
      const float2 turn = turn_of(dual, by, pair);
      x = d == columns.x ? x * turn.x - to_float(q[columns.y]) * turn.y
                         : to_float(q[columns.x]) * turn.y + x * turn.x;
    }
    query.q[i] = gain * x;
  }
}

template <class Q, class C>
__global__ __launch_bounds__(kPlainLanes* kPlainWarps) void plain_kernel(
    const __grid_constant__ Args a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int lane = static_cast<int>(threadIdx.x) % kPlainLanes;
  const int t = static_cast<int>(blockIdx.x);
  const int head =
      static_cast<int>(blockIdx.y) * kPlainWarps + static_cast<int>(threadIdx.x) / kPlainLanes;
  if (head >= a.q_heads) return;
  const int D = static_cast<int>(a.attrs.head_dim);
  const auto sequences = static_cast<int>(*a.sequences);
  // q_start counts from the whole batch's first token, as its first entry says.
  const int first = a.q_start[0];
  int s = 0;
  while (s < sequences && a.q_start[s + 1] - first <= t) ++s;
  if (s == sequences) return;
  const int last = a.q_start[s + 1] - first;
  const int position = a.kv_len[s] - (last - t);
  const auto window = static_cast<int>(a.attrs.window);
  const int begin = window > 0 ? max(0, position + 1 - window) : 0;
  const int kv_head =
      (head + static_cast<int>(a.attrs.head_offset)) / static_cast<int>(a.attrs.group);

  const int64_t row = (static_cast<int64_t>(t) * a.q_heads + head) * D;
  PlainQuery query;
#pragma unroll
  for (int i = 0; i < PlainQuery::kEach; ++i) {
    const int d = lane + i * kPlainLanes;
    query.q[i] = d < D ? to_float(static_cast<const Q*>(a.q)[row + d]) : 0.f;
    query.sum[i] = 0.f;
  }
  int64_t chunk_end = a.dual.chunk > 0 ? begin : INT64_MAX;  // of keys that the query is turned for
  for (int j = begin; j <= position; ++j) {
    if (j >= chunk_end) {
      const int chunk = j / a.dual.chunk;
      chunk_end = (int64_t{chunk} + 1) * a.dual.chunk;
      meet(a.dual, static_cast<const Q*>(a.q) + row, D, lane, position, chunk, query);
    }
    const int64_t page = a.page_table[s * a.table_stride + j / a.page_size];
    const int64_t key = ((page * a.page_size + j % a.page_size) * a.kv_heads + kv_head) * D;
    float score = a.attrs.scale * query.dot(static_cast<const C*>(a.k) + key, D, lane);
    if (a.attrs.softcap > 0) score = a.attrs.softcap * tanhf(score / a.attrs.softcap);
    query.add(score, static_cast<const C*>(a.v) + key, D, lane);
  }
#pragma unroll
  for (int i = 0; i < PlainQuery::kEach; ++i) {
    const int d = lane + i * kPlainLanes;
    if (d < D) static_cast<Q*>(a.out)[row + d] = Q(query.sum[i] / query.l);
  }
}

template <class Q>
void launch_for_cache(const Args& args, DType cache, LaunchContext context) {
  const dim3 grid(static_cast<unsigned>(args.tokens),
                  static_cast<unsigned>((args.q_heads + kPlainWarps - 1) / kPlainWarps));
  const auto launch = [&](auto kernel) {
    launch_kernel(context, kernel, grid, dim3(kPlainLanes * kPlainWarps), 0, args);
  };
  switch (cache) {
    case DType::f32:
      return launch(plain_kernel<Q, float>);
    case DType::f16:
      return launch(plain_kernel<Q, __half>);
    case DType::bf16:
      return launch(plain_kernel<Q, __nv_bfloat16>);
    default:
      fail(ErrorCode::kUnsupported, "attention over a cache of {} (f32, f16, bf16)", name(cache));
  }
}

}  // namespace

void plain_attention(const PlainAttentionParams& p, LaunchContext context) {
  if (p.attrs.head_dim > kMaxPlainHeadDim) {
    fail(ErrorCode::kUnsupported, "attention with head dim {} (at most {})", p.attrs.head_dim,
         kMaxPlainHeadDim);
  }
  const Args args = {.q = p.q.data,
                     .k = p.k_cache.data,
                     .v = p.v_cache.data,
                     .q_start = p.q_start.as<const int32_t>(),
                     .kv_len = p.kv_len.as<const int32_t>(),
                     .page_table = p.page_table.as<const int32_t>(),
                     .sequences = p.sequences,
                     .out = p.out.data,
                     .attrs = p.attrs,
                     .dual = p.attrs.dual ? dual_turns(*p.attrs.dual, p.turns) : DualTurns{},
                     .tokens = static_cast<int>(p.q.shape[0]),
                     .q_heads = static_cast<int>(p.q.cols() / p.attrs.head_dim),
                     .kv_heads = static_cast<int>(p.k_cache.shape[2]),
                     .page_size = static_cast<int>(p.k_cache.shape[1]),
                     .table_stride = static_cast<int>(p.page_table.cols())};
  switch (p.q.dtype) {
    case DType::f32:
      return launch_for_cache<float>(args, p.k_cache.dtype, context);
    case DType::bf16:
      return launch_for_cache<__nv_bfloat16>(args, p.k_cache.dtype, context);
    default:
      fail(ErrorCode::kUnsupported, "attention of queries in {} (f32, bf16)", name(p.q.dtype));
  }
}

}  // namespace braid::cuda
