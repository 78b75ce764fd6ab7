#pragma once

#include "braid/kernels/cuda/decode/device/decode_args.h"
#include "braid/kernels/cuda/decode/device/launch.h"

namespace braid::cuda {

// As StateArgs, but page_table has a sequence's pages, as in DecodeArgs.
struct PagedStateArgs : StateArgs {};

using PagedStateKernel = void (*)(PagedStateArgs);

// The kernels for a cache of `dtype`: head dims 64 and 128.
template <int kHeadDim>
PagedStateKernel paged_state_kernel_of(DType dtype);

// States (ops/attention_state.h) of queries over runs of their sequences' keys.
struct PagedStateParams {
  const void* q = nullptr;              // [T, Hq, D]
  const void* k_cache = nullptr;        // [NB, BS, Hkv, D]
  const void* v_cache = nullptr;        // [NB, BS, Hkv, D]
  const int32_t* page_table = nullptr;  // [S, P]
  const int32_t* rows = nullptr;        // [T]: the query's row of page_table
  const int32_t* begin = nullptr;       // [T]: the first key that the query sees
  const int32_t* end = nullptr;         // [T]: one past the last
  float* out = nullptr;                 // [T, Hq, D + 2], 16-byte aligned
  void* workspace = nullptr;            // as of DecodeParams
};

// `desc` counts each query as a sequence: max_sequences = max_tokens = T; outputs are f32. Fails
// with kUnsupported for calls outside the kernel.
DecodeConfig choose_paged_states(const DecodeDesc& desc, const DecodeDevice& device);
// Loads the kernel and allows its shared memory; once per device, outside any capture.
void prepare_paged_states(const DecodeDesc& desc);
// One launch, capturable.
void paged_states(const DecodeDesc& desc, const PagedStateParams& params,
                  const DecodeConfig& config, LaunchContext context);

}  // namespace braid::cuda
