// Binds the order and copy of a part's most important keys, and of queries in that order.
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/thinning/device/ordered_rows.h"
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
  const bool scored = std::ranges::any_of(attrs.parts, [](const ops::ThinnedPart& part) {
    return part.by == ops::ThinnedPart::By::scores;
  });
  return [&call, &attrs, workspace, scored](const LaunchContext& context) {
    const TensorView scorers = call.in.size() > 3 ? call.in[3] : TensorView();
    thin_keys({.q = call.in[0],
               .k = call.in[1],
               .v = call.in[2],
               .probes = scored ? TensorView() : scorers,
               .scores = scored ? scorers : TensorView(),
               .kept_k = call.out[0],
               .kept_v = call.out[1],
               .order = call.out.size() > 2 ? call.out[2] : TensorView(),
               .attrs = &attrs,
               .workspace = workspace},
              context);
  };
}

// Of q, or of a state's sums; a state's l and m are rows of one f32.
OrderedRowsParams ordered_of(const OpCall& call, size_t value, bool restore) {
  const auto& attrs = call.attrs<ops::OrderedQueriesAttrs>();
  const TensorView &in = call.in[value], &out = call.out[value];
  return {.ordered = restore ? in.data : out.data,
          .own = restore ? out.data : in.data,
          .order = call.in.back().as<const int32_t>(),
          .heads = static_cast<int>(in.shape[2]),
          .group = static_cast<int>(attrs.group),
          .row_bytes = bytes_of(in.dtype, in.shape.rank() == 4 ? in.shape[3] : 1),
          .restore = restore,
          .parts = attrs.parts};
}

BoundKernel bind_order(const LaunchArgs& args) {
  load_ordered_rows();
  return [&call = args.call](const LaunchContext& context) {
    ordered_rows(ordered_of(call, 0, false), context);
  };
}

BoundKernel bind_restore(const LaunchArgs& args) {
  load_ordered_rows();
  return [&call = args.call](const LaunchContext& context) {
    for (size_t value : {0u, 1u, 2u}) ordered_rows(ordered_of(call, value, true), context);
  };
}

}  // namespace

void add_thinning_kernels(KernelTable& table) {
  const auto scratch = std::make_shared<Scratch>();
  table.add(ops::kThinKeys.kind, {.info = thin_info, .bind = [scratch](const LaunchArgs& args) {
                                    return bind_thin(args, *scratch);
                                  }});
  table.add(ops::kOrderQueries.kind, simple_kernel(ops::kOrderQueries.kind, bind_order));
  table.add(ops::kRestoreStates.kind, simple_kernel(ops::kRestoreStates.kind, bind_restore));
}

}  // namespace braid::cuda
