#include "braid/base/error.h"
#include "braid/kernels/cuda/sampling/device/begin_step.h"
#include "braid/kernels/cuda/sampling/device/sampled_ids.cuh"

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
  put_sampled(p.token_ids, p.sampling->tokens, p.slot_tokens, p.slots, kThreads);
  __syncthreads();
  if (thread != 0) return;
  *p.rows = rows;
  const uint64_t step = *p.step + 1;
  *p.step = step;
  tell_taken(p.taken, step + 1);
}

}  // namespace

// Never launched early: the step before may still read the overwritten memory.
void begin_step(const BeginStep& p, LaunchContext context) {
  BRAID_CHECK(p.sampling && p.row_slots_in && p.joins && p.biases_in && p.taken && p.step &&
              p.rows && p.row_slots && p.params && p.states && p.counts_rows && p.biases &&
              p.slot_tokens && p.slots > 0 && p.token_ids);
  launch_kernel({context.stream, false}, begin_step_kernel, dim3(1), dim3(kThreads), 0, p);
}

}  // namespace braid::cuda
