#include "braid/base/error.h"
#include "braid/kernels/cuda/ptx/system.h"
#include "braid/kernels/cuda/sampling/device/begin_step.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 512;

__global__ __launch_bounds__(kThreads) void begin_step_kernel(const __grid_constant__ BeginStep p) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t rows = p.sampling->rows;
  const int joins = p.sampling->joins;
  for (int64_t r = thread; r < rows; r += kThreads) p.row_slots[r] = p.row_slots_in[r];
  for (int j = thread; j < joins; j += kThreads) {
    const SlotJoin& join = p.joins[j];
    p.params[join.slot] = join.params;
    p.states[join.slot] = join.state;
    p.counts_rows[join.slot] = join.counts_row;
  }
  for (int j = 0; j < joins; ++j) {
    const SlotJoin& join = p.joins[j];
    SampleBias* biases = p.biases + static_cast<int64_t>(join.slot) * kMaxBiases;
    for (int i = thread; i < join.params.num_biases; i += kThreads) {
      biases[i] = p.biases_in[join.first_bias + i];
    }
  }
  const int64_t tokens = p.sampling->tokens;
  for (int64_t t = thread; t < tokens; t += kThreads) {
    const int32_t id = p.token_ids[t];
    if (id < 0) p.token_ids[t] = p.slot_tokens[-1 - id];
  }
  __syncthreads();
  if (thread != 0) return;
  *p.rows = rows;
  const uint64_t step = *p.step + 1;
  *p.step = step;
  __threadfence_system();
  ptx::store_relaxed_system(
      p.taken, {static_cast<uint32_t>(step + 1), static_cast<uint32_t>((step + 1) >> 32)});
}

}  // namespace

// Never launched early: the step before may still read the overwritten memory.
void begin_step(const BeginStep& p, LaunchContext context) {
  BRAID_CHECK(p.sampling && p.row_slots_in && p.joins && p.biases_in && p.taken && p.step &&
              p.rows && p.row_slots && p.params && p.states && p.counts_rows && p.biases &&
              p.slot_tokens && p.token_ids);
  launch_kernel({context.stream, false}, begin_step_kernel, dim3(1), dim3(kThreads), 0, p);
}

}  // namespace braid::cuda
