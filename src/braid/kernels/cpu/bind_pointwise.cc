// Binds embedding, gather_rows, rms_norm, add, add_rms_norm and gated to kernels/cpu/pointwise.
#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/pointwise/elementwise.h"
#include "braid/kernels/cpu/pointwise/norm.h"
#include "braid/kernels/cpu/pointwise/rows.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/embedding.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"

namespace braid::cpu {
namespace {

BoundKernel bind_embedding(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  const TensorView& table = call.in[1];
  EmbeddingParams p{.table = table.data,
                    .dtype = table.dtype,
                    .row_bytes = table.row_bytes,
                    .cols = table.cols(),
                    .y_stride = call.out[0].cols(),
                    .scale = call.attrs<ops::EmbeddingAttrs>().scale};
  return [bound = p, &call](const Team& team) {
    auto p = bound;
    p.ids = call.in[0].as<const int32_t>();
    p.y = call.out[0].as<float>();
    p.tokens = call.rows();
    embedding(p, team);
  };
}

BoundKernel bind_gather(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  GatherRowsParams p{
      .cols = call.in[0].cols(), .x_stride = call.in[0].cols(), .y_stride = call.out[0].cols()};
  return [bound = p, &call](const Team& team) {
    auto p = bound;
    p.x = call.in[0].as<const float>();
    p.index = call.in[1].as<const int32_t>();
    p.y = call.out[0].as<float>();
    p.first = call.part->begin.token;
    p.rows = call.extents().row;
    gather_rows(p, team);
  };
}

BoundKernel bind_norm(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  const auto& a = call.attrs<ops::RmsNormAttrs>();
  const auto w = std::make_shared<std::vector<float>>(widen(call.in[1]));
  RmsNormParams p{.w = w->data(),
                  .cols = call.in[0].cols(),
                  .group = a.group,
                  .x_stride = call.in[0].cols(),
                  .y_stride = call.out[0].cols(),
                  .eps = a.eps};
  return [bound = p, w, &call, isa](const Team& team) {
    auto p = bound;
    p.x = call.in[0].as<const float>();
    p.y = call.out[0].as<float>();
    p.rows = call.rows();
    rms_norm(p, team, isa);
  };
}

BoundKernel bind_add_norm(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  const int64_t C = call.in[0].cols();
  const auto w = std::make_shared<std::vector<float>>(widen(call.in[2]));
  AddRmsNormParams p{.w = w->data(),
                     .cols = C,
                     .x_stride = C,
                     .r_stride = C,
                     .s_stride = C,
                     .y_stride = C,
                     .eps = call.attrs<ops::RmsNormAttrs>().eps};
  return [bound = p, w, &call, isa](const Team& team) {
    auto p = bound;
    p.x = call.in[0].as<const float>();
    p.r = call.in[1].as<const float>();
    p.s = call.out[0].as<float>();
    p.y = call.out[1].as<float>();
    p.rows = call.rows();
    add_rms_norm(p, team, isa);
  };
}

BoundKernel bind_binary(const LaunchArgs& args, Isa isa,
                        void (*kernel)(const BinaryParams&, const Team&, Isa)) {
  const OpCall& call = args.call;
  const int64_t C = call.in[0].cols();
  BinaryParams p{.cols = C, .a_stride = C, .b_stride = C, .y_stride = C};
  return [bound = p, &call, isa, kernel](const Team& team) {
    auto p = bound;
    p.a = call.in[0].as<const float>();
    p.b = call.in[1].as<const float>();
    p.y = call.out[0].as<float>();
    p.rows = call.rows();
    kernel(p, team, isa);
  };
}

BoundKernel bind_add(const LaunchArgs& args, Isa isa) {
  return bind_binary(args, isa, add);
}

BoundKernel bind_gated(const LaunchArgs& args, Isa isa) {
  const bool silu = args.call.attrs<ops::GatedAttrs>().activation == ops::Activation::silu;
  return bind_binary(args, isa, silu ? silu_mul : gelu_tanh_mul);
}

}  // namespace

void add_pointwise_kernels(KernelTable& table, Isa cap) {
  table.add(ops::kEmbedding.kind, simple_kernel(ops::kEmbedding, cap, bind_embedding));
  table.add(ops::kGatherRows.kind, simple_kernel(ops::kGatherRows, cap, bind_gather));
  table.add(ops::kRmsNorm.kind, simple_kernel(ops::kRmsNorm, cap, bind_norm));
  table.add(ops::kAddRmsNorm.kind, simple_kernel(ops::kAddRmsNorm, cap, bind_add_norm));
  table.add(ops::kAdd.kind, simple_kernel(ops::kAdd, cap, bind_add));
  table.add(ops::kGated.kind, simple_kernel(ops::kGated, cap, bind_gated));
}

}  // namespace braid::cpu
