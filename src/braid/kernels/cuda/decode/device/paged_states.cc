#include "braid/kernels/cuda/decode/device/paged_states.h"

#include "braid/backend/cuda/check.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/decode/device/instances.h"

namespace braid::cuda {
namespace {

PagedStateKernel find_kernel(const DecodeDesc& desc) {
  return desc.attrs.head_dim == 64 ? paged_state_kernel_of<64>(desc.cache_dtype)
                                   : paged_state_kernel_of<128>(desc.cache_dtype);
}

}  // namespace

DecodeConfig choose_paged_states(const DecodeDesc& desc, const DecodeDevice& device) {
  if (desc.attrs.head_dim != 64 && desc.attrs.head_dim != 128) {
    fail(ErrorCode::kUnsupported, "paged states: head dim {} (64 or 128)", desc.attrs.head_dim);
  }
  return choose(desc, device);
}

void prepare_paged_states(const DecodeDesc& desc) {
  verify(desc);
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(find_kernel(desc)),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  decode_device().shared_bytes),
             "paged states: shared memory");
}

void paged_states(const DecodeDesc& desc, const PagedStateParams& p, const DecodeConfig& config,
                  LaunchContext context) {
  PagedStateArgs a{};
  static_cast<DecodeArgs&>(a) = decode_args(desc,
                                            {.q = p.q,
                                             .k_cache = p.k_cache,
                                             .v_cache = p.v_cache,
                                             .q_start = p.rows,  // not read
                                             .kv_len = p.end,
                                             .page_table = p.page_table,
                                             .out = p.out,
                                             .workspace = p.workspace},
                                            config);
  a.rows = p.rows;
  a.begin = p.begin;
  launch_kernel(context, find_kernel(desc), static_cast<unsigned>(config.ctas),
                static_cast<unsigned>(32 * config.warps), config.shared_bytes, a);
}

}  // namespace braid::cuda
