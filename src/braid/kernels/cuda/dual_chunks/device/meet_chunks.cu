#include "braid/kernels/cuda/dual_chunks/device/meet_chunks.h"
#include "braid/kernels/cuda/dual_chunks/device/meet_row.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

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

// A CTA for a token and a chunk.
template <class T>
__global__ __launch_bounds__(kMeetThreads) void meet_kernel(const __grid_constant__ Args a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int t = static_cast<int>(blockIdx.x), part = static_cast<int>(blockIdx.y);
  const int chunk = a.first_chunk + part, first_key = chunk * a.dual.chunk;
  const int live = static_cast<int>(min(static_cast<int64_t>(a.max_sequences), *a.sequences));
  if (a.lengths != nullptr && t == 0 && part == 0) {
    for (int s = static_cast<int>(threadIdx.x); s < a.max_sequences; s += kMeetThreads) {
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
  if (!is_live) return;
  meet_row(a.dual, a.heads, a.head_dim, static_cast<const T*>(a.q) + t * a.q_stride,
           static_cast<T*>(a.met) + row * a.heads * a.head_dim, position, chunk);
}

}  // namespace

void meet_chunks(const MeetParams& p, LaunchContext context) {
  const int64_t D = p.head_dim, T = p.q.shape[0];
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
  with_query_type(p.q.dtype, D, [&](auto type) {
    launch_kernel(context, meet_kernel<decltype(type)>, grid, dim3(kMeetThreads), 0, args);
  });
}

}  // namespace braid::cuda
