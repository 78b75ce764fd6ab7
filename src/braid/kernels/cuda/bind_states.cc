// Binds attention over a rank's keys, and the merge of all ranks' states.
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/bind_attention.h"
#include "braid/kernels/cuda/bind_dual.h"
#include "braid/kernels/cuda/bind_merge.h"
#include "braid/kernels/cuda/decode/device/states.h"

namespace braid::cuda {
namespace {

enum Input : size_t { kQ, kCacheK, kCacheV, kSlots, kRows, kBegin, kEnd };

std::optional<DecodeConfig> choose_config(const DecodeDesc& desc, const DeviceInfo& device) {
  try {
    return choose(desc, decode_device_of(device));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUnsupported) throw;
    return {};
  }
}

ValueType type_of(const TensorView& view) {
  return {view.dtype, view.shape};
}

KernelInfo state_info(const Op& op, TypeList in, TypeList, const DeviceInfo& device) {
  const auto& attrs = op.attrs.as<ops::AttentionStateAttrs>();
  if (attrs.attention.dual) return {"attention_state.chunks", dual_states_bytes(op, in)};
  const DecodeDesc desc = state_desc(attrs.attention, in[kQ], in[kCacheK], in[kSlots]);
  return {choose_config(desc, device) ? "attention_state.decode" : "attention_state.plain", 0};
}

// `ready`: the lists of keys, and all keys but the step's own, are there before the step.
BoundKernel bind_state(const LaunchArgs& args, Scratch& scratch, bool ready) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::AttentionStateAttrs>();
  if (attrs.attention.dual) {
    // A kernel of the step makes its lists.
    return bind_dual_states(
        args, [&](const LaunchArgs& part) { return bind_state(part, scratch, false); });
  }
  const DecodeDesc desc = state_desc(attrs.attention, type_of(call.in[kQ]),
                                     type_of(call.in[kCacheK]), type_of(call.in[kSlots]));
  const std::optional<DecodeConfig> config = choose_config(desc, args.device);
  std::byte* workspace = nullptr;
  if (config) {
    prepare_attention_states(desc);
    workspace = scratch.get(args, config->workspace_bytes);
  }
  return [&call, &attrs, config, workspace, ready](const LaunchContext& context) {
    const StateParams p = {.q = call.in[kQ],
                           .k_cache = call.in[kCacheK],
                           .v_cache = call.in[kCacheV],
                           .slots = call.in[kSlots],
                           .rows = call.in[kRows].as<const int32_t>(),
                           .begin = call.in[kBegin].row_as<const int32_t>(attrs.window_row),
                           .end = call.in[kEnd].as<const int32_t>(),
                           .out = call.out[0].as<float>(),
                           .workspace = workspace,
                           .history_ready = ready,
                           .attrs = attrs.attention};
    config ? attention_states(p, *config, context) : plain_states(p, context);
  };
}

BoundKernel bind_merge(const LaunchArgs& args) {
  return [&call = args.call, queries = merge_queries(args)](const LaunchContext& context) {
    merge_states(merge_params(call, queries), context);
  };
}

BoundKernel bind_pack(const LaunchArgs& args) {
  return [&call = args.call](const LaunchContext& context) {
    pack_states({.sums = call.in[0],
                 .l = call.in[1].as<const float>(),
                 .m = call.in[2].as<const float>(),
                 .out = call.out[0],
                 .parts = call.attrs<ops::PackStatesAttrs>().parts},
                context);
  };
}

}  // namespace

void add_state_kernels(KernelTable& table) {
  const auto scratch = std::make_shared<Scratch>();
  table.add(ops::kAttentionState.kind,
            {.info = state_info, .bind = [scratch](const LaunchArgs& args) {
               return bind_state(args, *scratch, args.whole_batch);
             }});
  table.add(ops::kMergeStates.kind, simple_kernel(ops::kMergeStates.kind, bind_merge));
  table.add(ops::kPackStates.kind, simple_kernel(ops::kPackStates.kind, bind_pack));
}

}  // namespace braid::cuda
