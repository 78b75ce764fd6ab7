// Binds route, expert_gated, expert_linear and combine.
#include "braid/kernels/cpu/expert_product.h"
#include "braid/kernels/cpu/pointwise/combine.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/experts.h"

namespace braid::cpu {
namespace {

// Threads choose for their tokens; then a single thread sorts all choices.
BoundKernel bind_route(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  const auto bias = std::make_shared<std::vector<float>>(widen(call.in[1]));
  return [&call, bias](const Team& team) {
    const auto& a = call.attrs<ops::RouteAttrs>();
    const int64_t E = call.in[0].cols(), k = a.top_k, T = call.rows();
    const auto* logits = call.in[0].as<const float>();
    auto* weight = call.out[0].as<float>();
    auto* place = call.out[1].as<int32_t>();
    const Range mine = team.share(T);
    for (int64_t t = mine.begin; t < mine.end; ++t) {
      ops::choose_experts(a, {logits + t * E, static_cast<size_t>(E)},
                          bias->empty() ? nullptr : bias->data(), place + t * k, weight + t * k);
    }
    team.barrier();
    if (team.index != 0) return;
    call.part->count.expert_row = ops::sort_choices(
        T, k, ops::held_experts(a, E), place, call.out[2].as<int32_t>(), call.out[3].as<int32_t>());
  };
}

ExpertOperands operands(const Op& op) {
  if (op.def == &ops::kExpertLinear) {
    return {
        .begin = 1, .weights = 2, .biased = !op.attrs.as<ops::ExpertLinearAttrs>().bias_elsewhere};
  }
  return {.token = 1,
          .begin = 2,
          .weights = 3,
          .gate = gate_of(op.attrs.as<ops::GatedAttrs>().activation)};
}

// A token chooses an expert once: an expert's gathered rows have at most a row per token.
template <class Operand>
ExpertRows rows_of(std::span<const Operand> in, std::span<const Operand> out) {
  return {.all = out[0].shape[0], .of_one = in[0].shape[0]};
}

Kernel expert_kernel(LinearIsa isa) {
  return {
      .info =
          [isa](const Op& op, TypeList in, TypeList out, int threads) {
            const ExpertProductDesc d(operands(op), in, rows_of(in, out), threads);
            return KernelInfo{fmt::format("{}.{}", op.def->kind, name(isa)),
                              expert_linear_scratch_bytes(d.desc)};
          },
      .bind =
          [isa](const LaunchArgs& args) {
            const OpCall& call = args.call;
            const auto product = std::make_shared<const ExpertProduct>(
                args, operands(*call.op), rows_of(call.in, call.out), isa, args.workspace);
            return
                [&call, product](const Team& team) { product->run(team, call.out[0].as<float>()); };
          },
  };
}

BoundKernel bind_combine(const LaunchArgs& args, Isa isa) {
  const OpCall& call = args.call;
  return [&call, isa](const Team& team) {
    const bool own = !call.attrs<ops::CombineAttrs>().shared_elsewhere;
    const TensorView &x = call.in[2], &shared = call.in[3], &gate = call.in[4];
    combine({.x = x.as<const float>(),
             .weight = call.in[0].as<const float>(),
             .place = call.in[1].as<const int32_t>(),
             .shared = own && shared.data ? shared.as<const float>() : nullptr,
             .gate = gate.data ? gate.as<const float>() : nullptr,
             .y = call.out[0].as<float>(),
             .rows = call.rows(),
             .k = call.in[0].cols(),
             .cols = x.cols(),
             .x_stride = x.cols(),
             .shared_stride = x.cols(),
             .y_stride = x.cols()},
            team, isa);
  };
}

}  // namespace

void add_expert_kernels(KernelTable& table, Isa cap) {
  table.add(ops::kRoute.kind, simple_kernel(ops::kRoute, cap, bind_route));
  table.add(ops::kExpertGated.kind, expert_kernel(best_linear_isa(cap)));
  table.add(ops::kExpertLinear.kind, expert_kernel(best_linear_isa(cap)));
  table.add(ops::kCombine.kind, simple_kernel(ops::kCombine, cap, bind_combine));
}

}  // namespace braid::cpu
