#include "braid/kernels/cuda/dual_chunks/device/meet_segments.h"

#include <algorithm>

#include "braid/kernels/cuda/dual_chunks/device/meet_row.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

struct Args {
  MetSegment segments[kMaxQSegments];
  void* met;
  int64_t met_rows;
  int heads;
  int head_dim;
  int chunk;
  DualTurns dual;
};

// A CTA for a row of a sequence.
template <class T>
__global__ __launch_bounds__(kMeetThreads) void meet_segments_kernel(
    const __grid_constant__ Args a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int b = static_cast<int>(blockIdx.y);
  int row = static_cast<int>(blockIdx.x), segment = 0;
  while (row >= a.segments[segment].rows) row -= a.segments[segment++].rows;
  const MetSegment& s = a.segments[segment];
  const T* q = static_cast<const T*>(s.q) + b * s.stride.batch + row * s.stride.token;
  T* met = static_cast<T*>(a.met) + (b * a.met_rows + s.met_row + row) * a.heads * a.head_dim;
  meet_row(a.dual, a.heads, a.head_dim, q, met, s.position + row, a.chunk);
}

}  // namespace

void load_meet_segments(DType dtype, int64_t head_dim) {
  with_query_type(dtype, head_dim,
                  [](auto type) { load_kernel(meet_segments_kernel<decltype(type)>); });
}

void meet_segments(const MeetSegmentsParams& p, LaunchContext context) {
  if (p.sequences == 0) return;
  Args args = {.segments = {},
               .met = p.met,
               .met_rows = p.met_rows,
               .heads = static_cast<int>(p.heads),
               .head_dim = static_cast<int>(p.head_dim),
               .chunk = static_cast<int>(p.chunk),
               .dual = p.dual};
  for (size_t first = 0; first < p.segments.size(); first += kMaxQSegments) {
    const auto some =
        p.segments.subspan(first, std::min<size_t>(kMaxQSegments, p.segments.size() - first));
    std::ranges::copy(some, args.segments);
    int64_t rows = 0;
    for (const MetSegment& s : some) rows += s.rows;
    if (rows == 0) continue;
    const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(p.sequences));
    with_query_type(p.dtype, p.head_dim, [&](auto type) {
      launch_kernel(context, meet_segments_kernel<decltype(type)>, grid, dim3(kMeetThreads), 0,
                    args);
    });
    context.pdl = true;
  }
}

}  // namespace braid::cuda
