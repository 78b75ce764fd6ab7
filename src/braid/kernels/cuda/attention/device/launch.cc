#include "braid/kernels/cuda/attention/device/launch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "braid/backend/cuda/device.h"
#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/attention/device/generic_launch.h"
#include "braid/kernels/cuda/attention/device/hopper_launch.h"
#include "braid/kernels/cuda/attention/variants.h"

namespace braid::cuda {
namespace {

static_assert(kNumHopperVariants == BRAID_HOPPER_INSTANCES, "hopper_variants in CMakeLists.txt");

[[noreturn]] void no_kernel(const AttentionDesc& desc, const AttentionConfig& config) {
  fail(ErrorCode::kUnsupported, "attention: no kernel for {} as {}", to_string(desc),
       to_string(config));
}

template <DType kDType>
void launch_generic_any(const AttentionDesc& desc, const AttentionConfig& config,
                        const AttentionPlan& plan, cudaStream_t stream) {
  constexpr auto kLaunches = []<int... I>(std::integer_sequence<int, I...>) {
    return std::array{
        &launch_generic<kDType, kGenericVariants[I].head_dim_qk, kGenericVariants[I].head_dim_v,
                        kGenericVariants[I].block_m>...};
  }
  (std::make_integer_sequence<int, kNumGenericVariants>());
  for (size_t i = 0; i < kLaunches.size(); ++i) {
    const GenericVariant& v = kGenericVariants[i];
    if (v.head_dim_qk == desc.head_dim_qk && v.head_dim_v == desc.head_dim_v &&
        v.block_m == config.block_m) {
      return kLaunches[i](plan, stream);
    }
  }
  no_kernel(desc, config);
}

template <DType kDType>
void launch_hopper_any(const AttentionDesc& desc, const AttentionConfig& config,
                       const HopperParams& params, int num_sms, cudaStream_t stream) {
  constexpr auto kLaunches = []<int... I>(std::integer_sequence<int, I...>) {
    return std::array{&launch_hopper<kDType, I>...};
  }
  (std::make_integer_sequence<int, kNumHopperVariants>());
  const int variant = hopper_variant(desc, config);
  if (variant < 0) no_kernel(desc, config);
  kLaunches[variant](params, config.split, num_sms, stream);
}

void join_early(const AttentionConfig& config, const AttentionArrivals& arrivals,
                HopperParams& hopper) {
  const AttentionPlan& plan = hopper.plan;
  hopper.early_begin = plan.num_items;
  for (int r = plan.num_runs - 1; r >= 0 && arrivals.early != nullptr; --r) {
    if (plan.q[plan.run_begin[r]].early == 0) continue;
    BRAID_CHECK(hopper.early_begin == plan.item_begin[r + 1], "early queries before others");
    hopper.early_begin = plan.item_begin[r];
  }
  hopper.early = arrivals.early;
  constexpr int kWarps = 4;  // for 64 rows
  hopper.early_warps = static_cast<uint32_t>(plan.num_items - hopper.early_begin) *
                       static_cast<uint32_t>(kWarps * config.block_m / 64);
}

void join_arrivals(const AttentionDesc& desc, const AttentionParams& params,
                   const AttentionConfig& config, int num_sms, const AttentionArrivals* arrivals,
                   HopperParams& hopper) {
  const int clusters = std::min(hopper.plan.num_items, num_sms / config.cluster);
  const size_t each = attention_sums_bytes(desc, config) * clusters;
  if (arrivals != nullptr) join_early(config, *arrivals, hopper);
  const int early_items = hopper.plan.num_items - hopper.early_begin;
  const size_t least = each * (early_items > 0 && hopper.early_begin > 0 ? 2 : 1);
  if (arrivals == nullptr || arrivals->sums_bytes < least) {
    fail(ErrorCode::kInvalidArgument, "attention: {} bytes for sums that are left (at least {})",
         arrivals == nullptr ? 0 : arrivals->sums_bytes, least);
  }
  hopper.arrived = arrivals->arrived;
  const size_t places = std::min<size_t>(arrivals->sums_bytes / each, hopper.plan.num_items);
  const size_t ctas = static_cast<size_t>(clusters) * config.cluster;
  hopper.places = static_cast<int32_t>(places);
  const int64_t share = ceil_div(int64_t{hopper.places} * early_items, hopper.plan.num_items);
  hopper.early_places =
      static_cast<int32_t>(std::min<int64_t>(share, hopper.places - (hopper.early_begin > 0)));
  hopper.sums = static_cast<float4*>(arrivals->sums);
  hopper.held = reinterpret_cast<HeldItem*>(static_cast<std::byte*>(arrivals->sums) +
                                            places * (each - ctas * kHeldItemBytes));
  hopper.last_stage = params.kv.back().stage;
  hopper.timeout_ms = arrivals->timeout_ms;
}

}  // namespace

AttentionDevice attention_device() {
  int device = 0;
  AttentionDevice out;
  check_cuda(cudaGetDevice(&device), "attention: device");
  check_cuda(cudaDeviceGetAttribute(&out.num_sms, cudaDevAttrMultiProcessorCount, device),
             "attention: SM count");
  out.compute_capability = code_capability();
  return out;
}

AttentionDevice attention_device(const DeviceInfo& device) {
  return {.compute_capability = device.compute_capability, .num_sms = device.num_sms};
}

SparingConfig choose_beside_one_warp(const AttentionDesc& desc, const AttentionParams& params,
                                     AttentionDevice device) {
  const auto spare = [](const AttentionConfig& config) {
    return config.kernel == AttentionKernel::kGeneric ? 0 : config.cluster;  // CTAs come and go
  };
  const AttentionConfig alone = choose(desc, params, device);
  if (spare(alone) == 0) return {alone, device.num_sms};
  const int all = device.num_sms;
  device.num_sms -= spare(alone);
  const AttentionConfig beside = choose(desc, params, device);
  return {beside, all - std::max(spare(alone), spare(beside))};
}

void attention(const AttentionDesc& desc, const AttentionParams& params,
               const AttentionConfig& config, void* workspace, cudaStream_t stream, int num_sms,
               const AttentionArrivals* arrivals) {
  verify(desc, params);
  const bool carries = config.kernel == AttentionKernel::kGeneric || carries_state(config.form);
  if ((carries_state(desc) && !carries) || !takes_stages_of(config.form, params)) {
    fail(ErrorCode::kUnsupported, "attention: {} as {}", to_string(desc), to_string(config));
  }
  const bool bf16 = desc.dtype == DType::bf16;
  if (config.kernel == AttentionKernel::kGeneric) {
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
  if (num_sms == 0) num_sms = attention_device().num_sms;
  if (config.form == HopperForm::kArriving) {
    join_arrivals(desc, params, config, num_sms, arrivals, hopper);
  }
  bf16 ? launch_hopper_any<DType::bf16>(desc, config, hopper, num_sms, stream)
       : launch_hopper_any<DType::f16>(desc, config, hopper, num_sms, stream);
}

}  // namespace braid::cuda
