#include "braid/base/error.h"
#include "braid/kernels/cuda/dual_chunks/device/meet_chunks.h"
#include "braid/kernels/cuda/dual_chunks/device/turn_query.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 128;

struct Args {
  const void* q;
  void* met;
  const int32_t* q_start;
  const int32_t* kv_len;
  const int64_t* sequences;
  int32_t* lengths;
  int32_t* rows;
  int32_t* begin;
  int32_t* end;
  int64_t q_stride;  // elements
  int max_sequences;
  int first_chunk;
  int tokens;
  int heads;
  int head_dim;
  DualTurns dual;
};

// The last of `live` sequences that begins at token t or before.
__device__ int sequence_of(const int32_t* q_start, int live, int t) {
  int low = 0, high = live;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (q_start[middle] <= t ? low : high) = middle;
  }
  return low;
}

template <class T>
__device__ void meet(const Args& a, const T* q, T* met, int position, int chunk) {
  const int64_t by = moves(a.dual, position, chunk);
  const float gain = growth(a.dual, position);
  const int pairs = a.head_dim / 2, at_once = kThreads / pairs;
  const int pair = static_cast<int>(threadIdx.x) % pairs;
  const bool turns = pair < a.dual.pairs;
  const int2 at = turns ? columns_of(a.dual, pair) : make_int2(2 * pair, 2 * pair + 1);
  float2 turn = {1.f, 0.f};
  if (turns && by != 0) turn = turn_of(a.dual, by, pair);
  for (int h = static_cast<int>(threadIdx.x) / pairs; h < a.heads; h += at_once) {
    const T* from = q + h * a.head_dim;
    T* to = met + h * a.head_dim;
    const float x = widen(from[at.x]), y = widen(from[at.y]);
    to[at.x] = narrow<T>(gain * (x * turn.x - y * turn.y));
    to[at.y] = narrow<T>(gain * (x * turn.y + y * turn.x));
  }
}

// A CTA for a token and a chunk.
template <class T>
__global__ __launch_bounds__(kThreads) void meet_kernel(const __grid_constant__ Args a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int t = static_cast<int>(blockIdx.x), part = static_cast<int>(blockIdx.y);
  const int chunk = a.first_chunk + part, first_key = chunk * a.dual.chunk;
  const int live = static_cast<int>(min(static_cast<int64_t>(a.max_sequences), *a.sequences));
  if (a.lengths != nullptr && t == 0 && part == 0) {
    for (int s = static_cast<int>(threadIdx.x); s < a.max_sequences; s += kThreads) {
      a.lengths[s] = s < live ? min(max(a.kv_len[s] - first_key, 0), a.dual.chunk) : 0;
    }
  }
  const int64_t row = static_cast<int64_t>(part) * a.tokens + t;
  const int token = a.q_start[0] + t;
  const bool is_live = live > 0 && token < a.q_start[live];
  const int s = is_live ? sequence_of(a.q_start, live, token) : 0;
  const int position = is_live ? a.kv_len[s] - (a.q_start[s + 1] - token) : -1;
  if (a.rows != nullptr && threadIdx.x == 0) {
    const int keys = min(max(position + 1 - first_key, 0), a.dual.chunk);
    a.rows[row] = s;
    a.begin[row] = keys > 0 ? first_key : 0;
    a.end[row] = keys > 0 ? first_key + keys : 0;
  }
  if (!is_live || static_cast<int>(threadIdx.x) >= kThreads / (a.head_dim / 2) * (a.head_dim / 2)) {
    return;
  }
  meet(a, static_cast<const T*>(a.q) + t * a.q_stride,
       static_cast<T*>(a.met) + row * a.heads * a.head_dim, position, chunk);
}

}  // namespace

void meet_chunks(const MeetParams& p, LaunchContext context) {
  const int64_t D = p.head_dim, T = p.q.shape[0];
  if (D % 2 != 0 || D > 2 * kThreads) {
    fail(ErrorCode::kUnsupported, "dual chunks: head dim {} (even, at most {})", D, 2 * kThreads);
  }
  const Args args = {.q = p.q.data,
                     .met = p.met,
                     .q_start = p.q_start,
                     .kv_len = p.kv_len,
                     .sequences = p.sequences,
                     .lengths = p.lengths,
                     .rows = p.rows,
                     .begin = p.begin,
                     .end = p.end,
                     .q_stride = p.q.row_bytes / bytes_of(p.q.dtype, 1),
                     .max_sequences = p.max_sequences,
                     .first_chunk = p.first_chunk,
                     .tokens = static_cast<int>(T),
                     .heads = static_cast<int>(p.q.cols() / D),
                     .head_dim = static_cast<int>(D),
                     .dual = p.dual};
  const dim3 grid(static_cast<unsigned>(T), static_cast<unsigned>(p.chunks));
  switch (p.q.dtype) {
    case DType::f32:
      return launch_kernel(context, meet_kernel<float>, grid, dim3(kThreads), 0, args);
    case DType::bf16:
      return launch_kernel(context, meet_kernel<__nv_bfloat16>, grid, dim3(kThreads), 0, args);
    case DType::f16:
      return launch_kernel(context, meet_kernel<__half>, grid, dim3(kThreads), 0, args);
    default:
      fail(ErrorCode::kUnsupported, "dual chunks of queries in {} (f32, bf16, f16)",
           name(p.q.dtype));
  }
}

}  // namespace braid::cuda
