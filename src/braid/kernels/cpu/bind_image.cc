// Binds the ops of pictures and of text encoders.
#include <cmath>

#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/image/conv2d.h"
#include "braid/kernels/cpu/image/group_norm.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/conv2d.h"
#include "braid/ops/conv3d.h"
#include "braid/ops/group_norm.h"
#include "braid/ops/latent_scale.h"
#include "braid/ops/relative_bias.h"

namespace braid::cpu {
namespace {

// Null where the operand is absent.
const float* data_of(const TensorView& view) {
  return view.data == nullptr ? nullptr : view.as<const float>();
}

BoundKernel bind_conv2d(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  const auto& a = call.attrs<ops::Conv2dAttrs>();
  const auto bias = std::make_shared<std::vector<float>>(widen(call.in[2]));
  const Shape& w = call.in[1].shape;
  const Conv2dParams fixed{.w = call.in[1],
                           .bias = bias->empty() ? nullptr : bias->data(),
                           .batch = a.batch,
                           .height = a.height,
                           .width = a.width,
                           .out_height = a.out_size(a.height, w[2]),
                           .out_width = a.out_size(a.width, w[3]),
                           .stride = a.stride,
                           .padding = a.padding,
                           .upsample = a.upsample,
                           .silu = a.silu};
  return [fixed, bias, &call, scratch = args.workspace, isa](const Team& team) {
    Conv2dParams p = fixed;
    p.x = call.in[0].as<const float>();
    p.residual = data_of(call.in[3]);
    p.y = call.out[0].as<float>();
    conv2d(p, scratch, team, isa);
  };
}

BoundKernel bind_conv3d(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  const auto& a = call.attrs<ops::Conv3dAttrs>();
  const auto bias = std::make_shared<std::vector<float>>(widen(call.in[2]));
  const int64_t frame = a.height * a.width;
  const TensorView& before = call.in[4];
  const Conv2dParams fixed{.w = call.in[1],
                           .bias = bias->empty() ? nullptr : bias->data(),
                           .before_frames = before.data ? before.shape[0] / frame : 0,
                           .batch = call.in[0].shape[0] / frame,
                           .height = a.height,
                           .width = a.width,
                           .out_height = a.height,
                           .out_width = a.width,
                           .padding = a.padding,
                           .silu = a.silu};
  return [fixed, bias, &call, scratch = args.workspace, isa](const Team& team) {
    Conv2dParams p = fixed;
    p.x = call.in[0].as<const float>();
    p.residual = data_of(call.in[3]);
    p.before = data_of(call.in[4]);
    p.y = call.out[0].as<float>();
    conv2d(p, scratch, team, isa);
  };
}

// Loops over channels that the compiler makes vectors of.
BoundKernel bind_latent_scale(const LaunchArgs& args, Isa) {
  return [&call = args.call](const Team& team) {
    const auto& a = call.attrs<ops::LatentScaleAttrs>();
    const TensorView& x = call.in[0];
    const int64_t C = x.cols(), frames = x.shape[0] / (a.height * a.width);
    const int64_t latent_frames = call.in[1].shape[0] / (a.latent_height * a.latent_width);
    const Range rows = team.share(x.shape[0]);
    for (int64_t pixel = rows.begin; pixel < rows.end; ++pixel) {
      const int64_t at = a.source(pixel, frames, latent_frames);
      const float* from = x.row_as<const float>(pixel);
      const float* scale = call.in[1].row_as<const float>(at);
      const float* shift = call.in[2].row_as<const float>(at);
      float* to = call.out[0].row_as<float>(pixel);
      for (int64_t c = 0; c < C; ++c) to[c] = from[c] * scale[c] + shift[c];
      if (!a.silu) continue;
      for (int64_t c = 0; c < C; ++c) to[c] /= 1 + std::exp(-to[c]);
    }
  };
}

BoundKernel bind_group_norm(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  const auto& a = call.attrs<ops::GroupNormAttrs>();
  const auto w = std::make_shared<std::vector<float>>(widen(call.in[1]));
  const auto b = std::make_shared<std::vector<float>>(widen(call.in[2]));
  const GroupNormParams fixed{.w = w->data(),
                              .b = b->data(),
                              .batch = a.batch,
                              .pixels = call.in[0].shape[0] / a.batch,
                              .channels = call.in[0].cols(),
                              .groups = a.groups,
                              .eps = a.eps,
                              .silu = a.silu};
  return [fixed, w, b, &call, scratch = args.workspace, isa](const Team& team) {
    GroupNormParams p = fixed;
    p.x = call.in[0].as<const float>();
    p.y = call.out[0].as<float>();
    group_norm(p, scratch, team, isa);
  };
}

}  // namespace

void add_image_kernels(KernelTable& table, Isa cap) {
  const std::string suffix = "." + std::string(name(cap));
  table.add(ops::kConv2d.kind,
            {.info =
                 [suffix](const Op&, TypeList in, TypeList, int threads) {
                   return KernelInfo{"conv2d" + suffix, conv2d_scratch_bytes(in[1].shape, threads)};
                 },
             .bind = [cap](const LaunchArgs& args) { return bind_conv2d(args, cap); }});
  table.add(ops::kConv3d.kind,
            {.info =
                 [suffix](const Op&, TypeList in, TypeList, int threads) {
                   return KernelInfo{"conv3d" + suffix, conv2d_scratch_bytes(in[1].shape, threads)};
                 },
             .bind = [cap](const LaunchArgs& args) { return bind_conv3d(args, cap); }});
  table.add(ops::kLatentScale.kind, simple_kernel(ops::kLatentScale, cap, bind_latent_scale));
  table.add(ops::kGroupNorm.kind,
            {.info =
                 [suffix](const Op&, TypeList in, TypeList, int threads) {
                   return KernelInfo{"group_norm" + suffix,
                                     group_norm_scratch_bytes(in[0].shape[1], threads)};
                 },
             .bind = [cap](const LaunchArgs& args) { return bind_group_norm(args, cap); }});
  add_reference_kernel(table, ops::kRelativeBias);  // once for each encoded text
}

}  // namespace braid::cpu
