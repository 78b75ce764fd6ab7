// Binds the order and copy of a part's most important keys.
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/thinning/device/thin_keys.h"

namespace braid::cuda {
namespace {

KernelInfo thin_info(const Op& op, TypeList in, TypeList, const DeviceInfo&) {
  verify_thin_keys(op.attrs.as<ops::ThinKeysAttrs>(), in[0].dtype, in[0].shape[3]);
  return {"thin_keys.cuda", 0};
}

BoundKernel bind_thin(const LaunchArgs& args, Scratch& scratch) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::ThinKeysAttrs>();
  const int64_t kv_heads = call.in[1].shape[2];
  std::byte* const workspace = scratch.get(args, thin_keys_workspace(attrs, kv_heads));
  prepare_thin_keys(attrs, call.in[0].dtype, kv_heads, call.in[0].shape[3], workspace);
  return [&call, &attrs, workspace](const LaunchContext& context) {
    thin_keys({.q = call.in[0],
               .k = call.in[1],
               .v = call.in[2],
               .probes = call.in.size() > 3 ? call.in[3] : TensorView(),
               .kept_k = call.out[0],
               .kept_v = call.out[1],
               .attrs = &attrs,
               .workspace = workspace},
              context);
  };
}

}  // namespace

void add_thinning_kernels(KernelTable& table) {
  const auto scratch = std::make_shared<Scratch>();
  table.add(ops::kThinKeys.kind, {.info = thin_info, .bind = [scratch](const LaunchArgs& args) {
                                    return bind_thin(args, *scratch);
                                  }});
}

}  // namespace braid::cuda
