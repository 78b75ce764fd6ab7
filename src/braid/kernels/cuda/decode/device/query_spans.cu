#include "braid/kernels/cuda/decode/device/query_spans.h"

#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

__global__ void query_spans_kernel(const int32_t* q_start, const int32_t* kv_len,
                                   const int64_t* sequences, int max_sequences, int32_t* spans,
                                   int64_t* decodes) {
  __shared__ int first;  // sequence that is no decode
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int64_t live =
      sequences == nullptr || *sequences > max_sequences ? max_sequences : *sequences;
  if (threadIdx.x == 0) first = decodes == nullptr ? 0 : static_cast<int>(live);
  __syncthreads();
  if (decodes != nullptr) {
    for (int s = threadIdx.x; s < live; s += blockDim.x) {
      if (q_start[s + 1] - q_start[s] != 1) atomicMin(&first, s);
    }
    __syncthreads();
    if (threadIdx.x == 0) *decodes = first;
  }
  for (int s = threadIdx.x; s <= max_sequences; s += blockDim.x) {
    const int start = q_start[s < first ? first : s < live ? s : live];
    spans[s] = start;
    if (s == max_sequences) continue;
    const int length = s < live ? kv_len[s] : 0;
    spans[max_sequences + 1 + s] = s < live ? length - (q_start[s + 1] - q_start[s]) : 0;
    spans[2 * max_sequences + 1 + s] = length;
  }
}

}  // namespace

void query_spans(const int32_t* q_start, const int32_t* kv_len, const int64_t* sequences,
                 int max_sequences, int32_t* spans, int64_t* decodes, LaunchContext context) {
  launch_kernel(context, query_spans_kernel, 1, 128, 0, q_start, kv_len, sequences, max_sequences,
                spans, decodes);
}

}  // namespace braid::cuda
