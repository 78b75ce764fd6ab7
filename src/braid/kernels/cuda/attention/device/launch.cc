#include "braid/kernels/cuda/attention/launch.h"

#include "braid/backend/cuda/device.h"
#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/attention/generic_launch.h"
#include "braid/kernels/cuda/attention/hopper_launch.h"
#include "braid/kernels/cuda/attention/variants.h"

namespace braid::cuda {
namespace {

template <DType kDType>
void launch_generic_any(const AttentionDesc& desc, const AttentionConfig& config,
                        const AttentionPlan& plan, cudaStream_t stream) {
#define BRAID_TRY(qk, v, m)                                                  \
  if (desc.head_dim_qk == qk && desc.head_dim_v == v && config.block_m == m) \
    return launch_generic_variant<kDType, qk, v, m>(plan, stream);
  BRAID_TRY(64, 64, 64)
  BRAID_TRY(64, 64, 128)
  BRAID_TRY(96, 96, 64)
  BRAID_TRY(96, 96, 128)
  BRAID_TRY(128, 128, 64)
  BRAID_TRY(128, 128, 128)
  BRAID_TRY(192, 128, 64)
  BRAID_TRY(256, 256, 64)
#undef BRAID_TRY
  fail(ErrorCode::kUnsupported, "attention: no kernel for {} as {}", to_string(desc),
       to_string(config));
}

template <DType kDType>
void launch_hopper_any(const AttentionDesc& desc, const AttentionConfig& config,
                       const HopperParams& params, int num_sms, cudaStream_t stream) {
#define BRAID_TRY(qk, v, consumers, n, kv_stages, q_stages, ctas, ctas_per_cluster, q_reg, splits, \
                  stage, ...)                                                                      \
  if (desc.head_dim_qk == qk && desc.head_dim_v == v && config.block_n == n &&                     \
      config.block_m == 64 * consumers * ctas_per_cluster && config.cluster == ctas_per_cluster && \
      config.staged == bool(stage) && (config.split == 1 || splits))                               \
    return launch_hopper_variant<kDType, qk, v, consumers, n, ctas_per_cluster, stage>(            \
        params, config.split, num_sms, stream);
  BRAID_HOPPER_VARIANTS(BRAID_TRY)
#undef BRAID_TRY
  fail(ErrorCode::kUnsupported, "attention: no kernel for {} as {}", to_string(desc),
       to_string(config));
}

// The calls before are waited for as a whole.
void restart(AttentionChain& chain, cudaStream_t stream) {
  if (chain.calls == 0) return;
  check_cuda(cudaMemsetAsync(chain.ready, 0, (chain.slots - 1) * sizeof(int32_t), stream),
             "attention: chain");
  chain.calls = 0;
}

// The call's place in its chain: what it waits for, and whether the next may follow it.
void join_chain(AttentionChain& chain, const AttentionConfig& config, cudaStream_t stream,
                HopperParams& params) {
  const AttentionPlan& plan = params.plan;
  const int32_t heads = plan.num_head_items * plan.batch;
  const int32_t units = plan.run_units[0];
  const bool fits = config.staged && plan.num_q == 1 && !plan.device_lengths &&
                    int64_t{heads} * units < chain.slots;
  params.ready = chain.ready;
  params.late = chain.ready + chain.slots - 1;
  if (!fits || !plan.load_state || chain.units != units || chain.heads != heads) {
    restart(chain, stream);
  }
  params.ready_count = chain.calls;
  params.signals = fits && !plan.finalize;
  params.counters += 2 * (chain.calls % 2);
  chain.calls = params.signals ? chain.calls + 1 : 0;
  chain.units = units;
  chain.heads = heads;
}

}  // namespace

int64_t attention_chain_slots(const AttentionDesc& desc, const AttentionParams& params) {
  int64_t tokens = 0;
  for (const QSegment& q : params.q) tokens += q.length;
  // Of a packed unit's 64 rows at least 33 are tokens' heads.
  return int64_t{desc.batch} * desc.num_q_heads * (ceil_div(tokens, 33) + 1) + 1;
}

AttentionDevice attention_device() {
  int device = 0;
  AttentionDevice out;
  check_cuda(cudaGetDevice(&device), "attention: device");
  check_cuda(cudaDeviceGetAttribute(&out.num_sms, cudaDevAttrMultiProcessorCount, device),
             "attention: SM count");
  out.compute_capability = code_capability();
  return out;
}

SparingConfig choose_beside_one_warp(const AttentionDesc& desc, const AttentionParams& params,
                                     AttentionDevice device) {
  const auto spare = [](const AttentionConfig& config) {
    return config.kernel == AttentionKernel::kGeneric ? 0 : config.cluster;  // its CTAs come and go
  };
  SparingConfig out{choose(desc, params, device)};
  out.spare_sms = spare(out.config);
  if (out.spare_sms == 0) return out;
  device.num_sms -= out.spare_sms;
  out.config = choose(desc, params, device);
  out.spare_sms = std::max(out.spare_sms, spare(out.config));
  return out;
}

void attention(const AttentionDesc& desc, const AttentionParams& params,
               const AttentionConfig& config, void* workspace, cudaStream_t stream, int spare_sms,
               AttentionChain* chain) {
  verify(desc, params);
  const bool bf16 = desc.dtype == DType::bf16;
  if (config.kernel == AttentionKernel::kGeneric) {
    if (chain != nullptr) restart(*chain, stream);
    const AttentionPlan plan = make_plan(desc, params, config);
    if (plan.num_items == 0) return;
    bf16 ? launch_generic_any<DType::bf16>(desc, config, plan, stream)
         : launch_generic_any<DType::f16>(desc, config, plan, stream);
    return;
  }
  HopperParams hopper{};
  hopper.plan = make_plan(desc, params, config);
  if (hopper.plan.num_items == 0) return;
  hopper.counters = static_cast<int32_t*>(workspace);
  make_tensor_maps(desc, config, hopper);
  if (chain != nullptr) join_chain(*chain, config, stream, hopper);
  const int num_sms = attention_device().num_sms - spare_sms;
  bf16 ? launch_hopper_any<DType::bf16>(desc, config, hopper, num_sms, stream)
       : launch_hopper_any<DType::f16>(desc, config, hopper, num_sms, stream);
}

}  // namespace braid::cuda
