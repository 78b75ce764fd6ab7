// Binds ops for pictures and text encoders.
#include <cmath>
#include <cstring>

#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/image/conv2d.h"
#include "braid/kernels/cpu/image/group_norm.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/conv2d.h"
#include "braid/ops/conv3d.h"
#include "braid/ops/group_norm.h"
#include "braid/ops/latent_scale.h"
#include "braid/ops/picture_rows.h"
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
                           .out_height = a.out_height(w[2]),
                           .out_width = a.out_width(w[3]),
                           .stride = a.stride,
                           .padding = a.padding,
                           .padding_above = a.padding_above(),
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
                           .batch = a.out_frames(call.in[0].shape[0] / frame),
                           .height = a.height,
                           .width = a.width,
                           .out_height = a.out_height(),
                           .out_width = a.out_width(),
                           .stride = a.stride,
                           .padding = a.padding,
                           .padding_above = a.padding_above(),
                           .upsample = a.upsample,
                           .frame_stride = a.frame_stride,
                           .frame_upsample = a.frame_upsample,
                           .first_lacks = a.first_lacks(),
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

// Loops over channels, which the compiler turns into vector code.
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

GroupNormParams norm_of(const OpCall& call, const ops::GroupNormAttrs& a) {
  return {.x = call.in[0].as<const float>(),
          .batch = a.batch,
          .pixels = call.in[0].shape[0] / a.batch,
          .channels = call.in[0].cols(),
          .groups = a.groups,
          .eps = a.eps,
          .silu = a.silu};
}

// Binds `run`, which gets a norm's parameters and the launch's team.
template <class Run>
BoundKernel bind_norm(const LaunchArgs& args, const ops::GroupNormAttrs& a, Run run) {
  const auto w = std::make_shared<std::vector<float>>(widen(args.call.in[1]));
  const auto b = std::make_shared<std::vector<float>>(widen(args.call.in[2]));
  return [w, b, &a, &call = args.call, run](const Team& team) {
    GroupNormParams p = norm_of(call, a);
    p.w = w->data();
    p.b = b->data();
    p.y = call.out[0].as<float>();
    run(p, team);
  };
}

BoundKernel bind_group_norm(const LaunchArgs& args, Isa isa) {
  return bind_norm(args, args.call.attrs<ops::GroupNormAttrs>(),
                   [scratch = args.workspace, isa](const GroupNormParams& p, const Team& team) {
                     group_norm(p, scratch, team, isa);
                   });
}

BoundKernel bind_group_stats(const LaunchArgs& args, Isa isa) {
  return [&call = args.call, scratch = args.workspace, isa](const Team& team) {
    const int64_t groups = call.attrs<ops::GroupStatsAttrs>().groups;
    group_stats(norm_of(call, {.groups = groups}), call.out[0].as<float>(), scratch, team, isa);
  };
}

BoundKernel bind_group_norm_by(const LaunchArgs& args, Isa isa) {
  const auto& a = args.call.attrs<ops::GroupNormByAttrs>();
  return bind_norm(args, a.norm,
                   [&call = args.call, &a, scratch = args.workspace, isa](const GroupNormParams& p,
                                                                          const Team& team) {
                     const float* stats = call.in[3].as<const float>();
                     const int64_t of_group = p.channels / p.groups;
                     for (const ops::RowMove& m : ops::moves_of(a, p.pixels)) {
                       if (m.rows == 0) continue;
                       GroupNormParams rows = p;
                       rows.x = call.in[m.edges ? 4 : 0].row_as<const float>(m.from);
                       rows.y = call.out[0].row_as<float>(m.to);
                       rows.pixels = m.rows;
                       group_norm_by(
                           rows,
                           [&](int64_t group) {
                             const auto m = ops::group_moments(a, stats, group, of_group);
                             return GroupMoments{m.mean, m.variance};
                           },
                           scratch, team, isa);
                     }
                   });
}

// Moves for edge_rows and with_halo: each thread takes a share of a run's bytes.
template <class A>
BoundKernel bind_moves(const LaunchArgs& args, Isa) {
  return [&call = args.call](const Team& team) {
    for (const ops::RowMove& m : ops::moves_of(call.attrs<A>(), call.in[0].shape[0])) {
      const TensorView& from = call.in[m.edges ? 1 : 0];
      const Range share = team.share(m.rows * from.row_bytes);
      for (int64_t i = 0; i < m.count && !share.empty(); ++i) {
        std::memcpy(call.out[0].row(m.to + (i * m.to_stride)) + share.begin,
                    from.row(m.from + (i * m.from_stride)) + share.begin, share.size());
      }
    }
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
  const auto add_norm = [&](const OpDef& def, BoundKernel (*bind)(const LaunchArgs&, Isa)) {
    table.add(def.kind, {.info =
                             [suffix, &def](const Op&, TypeList in, TypeList, int threads) {
                               return KernelInfo{std::string(def.kind) + suffix,
                                                 group_norm_scratch_bytes(in[0].shape[1], threads)};
                             },
                         .bind = [cap, bind](const LaunchArgs& args) { return bind(args, cap); }});
  };
  add_norm(ops::kGroupNorm, bind_group_norm);
  add_norm(ops::kGroupStats, bind_group_stats);
  add_norm(ops::kGroupNormBy, bind_group_norm_by);
  table.add(ops::kEdgeRows.kind,
            simple_kernel(ops::kEdgeRows, cap, bind_moves<ops::EdgeRowsAttrs>));
  table.add(ops::kWithHalo.kind,
            simple_kernel(ops::kWithHalo, cap, bind_moves<ops::WithHaloAttrs>));
  add_reference_kernel(table, ops::kRelativeBias);  // once for each encoded text
}

}  // namespace braid::cpu
