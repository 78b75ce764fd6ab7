#include "braid/kernels/cuda/dual_chunks/device/meet_held.h"

#include "braid/kernels/cuda/dual_chunks/device/meet_row.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

struct Args {
  const void* q;
  void* met;
  const int32_t* rows;
  const int32_t* begin;
  const int32_t* end;
  int32_t* met_rows;
  int32_t* met_begin;
  int32_t* met_end;
  int chunks;
  int heads;
  int head_dim;
  DualTurns dual;
};

// A CTA for a query and a chunk.
template <class T>
__global__ __launch_bounds__(kMeetThreads) void meet_held_kernel(const __grid_constant__ Args a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int t = static_cast<int>(blockIdx.x), n = static_cast<int>(blockIdx.y);
  const auto tokens = static_cast<int>(gridDim.x);
  int begin = 0, end = 0;
  if (n < a.chunks) {
    const int32_t* first = a.begin + n * tokens + t;
    begin = max(a.begin[t], first[0]);
    end = n + 1 < a.chunks ? min(a.end[t], first[tokens]) : a.end[t];
    if (begin >= end) begin = end = 0;
  }
  const int row = n * tokens + t;
  if (threadIdx.x == 0) {
    a.met_rows[row] = a.rows[t];
    a.met_begin[row] = begin;
    a.met_end[row] = end;
  }
  if (begin == end) return;
  const int64_t width = static_cast<int64_t>(a.heads) * a.head_dim;
  meet_row(a.dual, a.heads, a.head_dim, static_cast<const T*>(a.q) + t * width,
           static_cast<T*>(a.met) + row * width, a.begin[a.chunks * tokens + t], n);
}

}  // namespace

void load_meet_held(DType dtype, int64_t head_dim) {
  with_query_type(dtype, head_dim,
                  [](auto type) { load_kernel(meet_held_kernel<decltype(type)>); });
}

void meet_held(const MeetHeldParams& p, LaunchContext context) {
  const Args args = {.q = p.q.data,
                     .met = p.met,
                     .rows = p.rows,
                     .begin = p.begin,
                     .end = p.end,
                     .met_rows = p.met_rows,
                     .met_begin = p.met_begin,
                     .met_end = p.met_end,
                     .chunks = static_cast<int>(p.chunks),
                     .heads = static_cast<int>(p.q.shape[2]),
                     .head_dim = static_cast<int>(p.q.shape[3]),
                     .dual = p.dual};
  const dim3 grid(static_cast<unsigned>(p.q.shape[1]), static_cast<unsigned>(p.met_chunks));
  with_query_type(p.q.dtype, p.q.shape[3], [&](auto type) {
    launch_kernel(context, meet_held_kernel<decltype(type)>, grid, dim3(kMeetThreads), 0, args);
  });
}

}  // namespace braid::cuda
