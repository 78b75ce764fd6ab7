#include "braid/base/error.h"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/sampling/device/advance.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 128;

__global__ __launch_bounds__(kThreads) void advance_kernel(
    const __grid_constant__ AdvanceParams p) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int s = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (s == 0 && p.step != nullptr) *p.step += 1;
  if (s >= p.capacity || s >= *p.rows) return;
  const int32_t position = p.positions[s] + 1;
  const int32_t page = position / p.page_size;
  const int32_t physical = page < p.page_table_stride
                               ? p.page_table[static_cast<int64_t>(s) * p.page_table_stride + page]
                               : -1;
  p.token_ids[s] = p.sampled[s];
  p.positions[s] = position;
  p.kv_len[s] += 1;
  p.slots[s] = physical < 0 ? -1 : physical * p.page_size + position % p.page_size;
  if (physical < 0) p.overrun[s] = 1;
}

}  // namespace

void advance(const AdvanceParams& p, LaunchContext context) {
  BRAID_CHECK(p.sampled && p.token_ids && p.positions && p.kv_len && p.slots && p.page_table &&
              p.overrun && p.rows && p.page_size > 0 && p.capacity > 0);
  const auto blocks = static_cast<unsigned>((p.capacity + kThreads - 1) / kThreads);
  launch_kernel(context, advance_kernel, dim3(blocks), dim3(kThreads), 0, p);
}

}  // namespace braid::cuda
