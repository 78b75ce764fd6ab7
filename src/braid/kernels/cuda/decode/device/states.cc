#include "braid/kernels/cuda/decode/device/states.h"

#include "braid/backend/cuda/check.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/decode/device/instances.h"

namespace braid::cuda {
namespace {

constexpr int64_t kKeysAPage = 64;  // in the description: places of keys are slots

StateKernel find_kernel(const DecodeDesc& desc) {
  switch (desc.attrs.head_dim) {
    case 64:
      return state_kernel_of<64>(desc.cache_dtype);
    case 96:
      return state_kernel_of<96>(desc.cache_dtype);
    case 128:
      return state_kernel_of<128>(desc.cache_dtype);
    default:
      return state_kernel_of<256>(desc.cache_dtype);
  }
}

ValueType type_of(const TensorView& view) {
  return {view.dtype, view.shape};
}

}  // namespace

DecodeDesc state_desc(const ops::AttentionAttrs& attrs, const ValueType& q, const ValueType& cache,
                      const ValueType& slots) {
  const auto T = static_cast<int>(q.shape[1]);
  return {.attrs = attrs,
          .q_dtype = q.dtype,
          .cache_dtype = cache.dtype,
          .out_dtype = DType::f32,
          .num_q_heads = static_cast<int>(q.shape[2]),
          .num_kv_heads = static_cast<int>(cache.shape[2]),
          .page_size = static_cast<int>(kKeysAPage),
          .table_stride = static_cast<int>(ceil_div(slots.shape[1], kKeysAPage)),
          .max_sequences = T,
          .max_tokens = T};
}

void prepare_attention_states(const DecodeDesc& desc) {
  verify(desc);
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(find_kernel(desc)),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  decode_device().shared_bytes),
             "attention states: shared memory");
}

void attention_states(const StateParams& p, const DecodeConfig& config, LaunchContext context) {
  const DecodeDesc desc = state_desc(p.attrs, type_of(p.q), type_of(p.k_cache), type_of(p.slots));
  const auto* slots = p.slots.as<const int32_t>();
  StateArgs a{decode_args(desc,
                          {.q = p.q.data,
                           .k_cache = p.k_cache.data,
                           .v_cache = p.v_cache.data,
                           .q_start = p.rows,  // not read
                           .kv_len = p.end,
                           .page_table = slots,
                           .out = p.out,
                           .workspace = p.workspace,
                           .history_ready = p.history_ready},
                          config),
              p.rows, p.begin};
  a.table_stride = static_cast<int>(p.slots.cols());
  launch_kernel(context, find_kernel(desc), static_cast<unsigned>(config.ctas),
                static_cast<unsigned>(32 * config.warps), config.shared_bytes, a);
}

}  // namespace braid::cuda
