// Binds convolutions, group norms and latent_scale.
#include <map>
#include <mutex>
#include <tuple>

#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/image/device/conv2d.h"
#include "braid/kernels/cuda/image/device/group_norm.h"
#include "braid/kernels/cuda/image/device/latent_scale.h"
#include "braid/kernels/cuda/pointwise/device/copy_pieces.h"

namespace braid::cuda {
namespace {

// Weights in the kernels' order of summing, made when a launch first asks for them. Plans of all
// sizes share the packed weights.
class PackedWeights {
 public:
  const void* get(const LaunchArgs& args) {
    const TensorView& w = args.call.in[1];
    const DType dtype = args.call.in[0].dtype;
    auto& memory = memory_[{w.data, dtype}];
    if (!memory) {
      memory = std::make_unique<CudaMemory>(args.device.id, bytes_of(dtype, w.shape.elems()));
      pack_conv_weights(w, memory->data(), dtype, {});
      check_cuda(cudaStreamSynchronize(nullptr), "weights of a convolution");
    }
    return memory->data();
  }

 private:
  std::map<std::pair<const void*, DType>, std::unique_ptr<DeviceMemory>> memory_;
};

ops::Conv2dAttrs attrs_of(const Op& op, const Shape& x) {
  if (op.def == &ops::kConv2d) return op.attrs.as<ops::Conv2dAttrs>();
  return frames_as_pictures(op.attrs.as<ops::Conv3dAttrs>(), x);
}

// What a launch of the op has whatever the operands' places.
Conv2dParams params_of(const Op& op, const Shape& x, const Shape& w) {
  Conv2dParams p{.kernel_height = w[-2], .kernel_width = w[-1], .attrs = attrs_of(op, x)};
  if (op.def == &ops::kConv2d) return p;
  const auto& a = op.attrs.as<ops::Conv3dAttrs>();
  p.kernel_frames = w[2];
  p.frame_stride = a.frame_stride;
  p.frame_upsample = a.frame_upsample;
  p.first_lacks = a.first_lacks();
  return p;
}

ConvDevice conv_device(const DeviceInfo& device) {
  return {.compute_capability = device.compute_capability, .num_sms = device.num_sms};
}

BoundKernel bind_conv(const LaunchArgs& args, PackedWeights& weights) {
  const OpCall& call = args.call;
  const TensorView &x = call.in[0], &w = call.in[1];
  Conv2dParams fixed = params_of(*call.op, x.shape, w.shape);
  const ConvConfig config = choose(conv_desc(fixed.attrs, {x.dtype, x.shape}, {w.dtype, w.shape}),
                                   conv_device(args.device));
  load_conv2d(x.dtype, config, fixed.joins_frames());
  fixed.num_sms = args.device.num_sms;
  fixed.w = weights.get(args);
  return [&call, config, fixed](const LaunchContext& context) {
    Conv2dParams p = fixed;
    p.x = call.in[0];
    if (call.in.size() > 4) p.before = call.in[4];
    p.bias = call.in[2];
    p.residual = call.in[3];
    p.y = call.out[0];
    conv2d(p, config, context);
  };
}

BoundKernel bind_latent_scale(const LaunchArgs& args) {
  return [&call = args.call](const LaunchContext& context) {
    latent_scale({.x = call.in[0],
                  .scale = call.in[1],
                  .shift = call.in[2],
                  .y = call.out[0],
                  .attrs = call.attrs<ops::LatentScaleAttrs>()},
                 context);
  };
}

GroupNormParams norm_of(const OpCall& call, const ops::GroupNormAttrs& attrs, void* workspace) {
  return {.x = call.in[0],
          .w = call.in[1],
          .b = call.in[2],
          .y = call.out[0],
          .workspace = workspace,
          .attrs = attrs};
}

BoundKernel bind_group_norm(const LaunchArgs& args) {
  return [&call = args.call, workspace = args.workspace](const LaunchContext& context) {
    group_norm(norm_of(call, call.attrs<ops::GroupNormAttrs>(), workspace), context);
  };
}

BoundKernel bind_group_stats(const LaunchArgs& args) {
  return [&call = args.call, workspace = args.workspace](const LaunchContext& context) {
    group_stats({.x = call.in[0],
                 .stats = call.out[0],
                 .workspace = workspace,
                 .groups = call.attrs<ops::GroupStatsAttrs>().groups},
                context);
  };
}

BoundKernel bind_group_norm_by(const LaunchArgs& args) {
  return [&call = args.call, workspace = args.workspace](const LaunchContext& context) {
    const auto& a = call.attrs<ops::GroupNormByAttrs>();
    group_norm_by({.norm = norm_of(call, a.norm, workspace),
                   .stats = call.in[3],
                   .edges = call.in[4],
                   .attrs = a},
                  context);
  };
}

// Moves of edge_rows and with_halo.
template <class A>
BoundKernel bind_moves(const LaunchArgs& args) {
  return [&call = args.call](const LaunchContext& context) {
    std::vector<CopyPiece> pieces;
    for (const ops::RowMove& m : ops::moves_of(call.attrs<A>(), call.in[0].shape[0])) {
      if (m.rows == 0) continue;
      const TensorView &from = call.in[m.edges ? 1 : 0], &to = call.out[0];
      pieces.push_back({.from = from.data + (m.from * from.row_bytes),
                        .to = to.data + (m.to * to.row_bytes),
                        .count = m.count,
                        .bytes = m.rows * from.row_bytes,
                        .from_stride = m.from_stride * from.row_bytes,
                        .to_stride = m.to_stride * to.row_bytes});
    }
    copy_pieces(pieces, context);
  };
}

}  // namespace

void add_image_kernels(KernelTable& table) {
  const auto weights = std::make_shared<PackedWeights>();
  for (const OpDef* def : {&ops::kConv2d, &ops::kConv3d}) {
    table.add(def->kind,
              {.info =
                   [def](const Op& op, TypeList in, TypeList, const DeviceInfo& device) {
                     const ConvDesc desc = conv_desc(attrs_of(op, in[0].shape), in[0], in[1]);
                     return KernelInfo{fmt::format("{}.{}", def->kind,
                                                   to_string(choose(desc, conv_device(device)))),
                                       0};
                   },
               .bind = [weights](const LaunchArgs& args) { return bind_conv(args, *weights); }});
  }
  table.add(ops::kLatentScale.kind, simple_kernel(ops::kLatentScale.kind, bind_latent_scale));
  const auto add_norm = [&](const OpDef& def, BoundKernel (*bind)(const LaunchArgs&),
                            auto groups_of) {
    table.add(def.kind,
              {.info =
                   [&def, groups_of](const Op& op, TypeList in, TypeList, const DeviceInfo&) {
                     return KernelInfo{fmt::format("{}.cuda", def.kind),
                                       group_norm_workspace(groups_of(op.attrs), in[0].shape)};
                   },
               .bind = bind});
  };
  add_norm(ops::kGroupNorm, bind_group_norm,
           [](const Attrs& attrs) { return attrs.as<ops::GroupNormAttrs>(); });
  add_norm(ops::kGroupStats, bind_group_stats, [](const Attrs& attrs) {
    return ops::GroupNormAttrs{.groups = attrs.as<ops::GroupStatsAttrs>().groups};
  });
  add_norm(ops::kGroupNormBy, bind_group_norm_by,
           [](const Attrs& attrs) { return attrs.as<ops::GroupNormByAttrs>().norm; });
  table.add(ops::kEdgeRows.kind,
            simple_kernel(ops::kEdgeRows.kind, bind_moves<ops::EdgeRowsAttrs>));
  table.add(ops::kWithHalo.kind,
            simple_kernel(ops::kWithHalo.kind, bind_moves<ops::WithHaloAttrs>));
}

}  // namespace braid::cuda
