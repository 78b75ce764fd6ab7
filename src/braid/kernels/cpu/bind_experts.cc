// Binds route, expert_gated, expert_linear and combine.
#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/linear/expert_linear.h"
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

Gate gate_of(const Op& op) {
  if (op.def != &ops::kExpertGated) return Gate::none;
  return op.attrs.as<ops::GatedAttrs>().activation == ops::Activation::silu ? Gate::silu
                                                                            : Gate::gelu_tanh;
}

// Positions of the operands of both expert products.
struct Operands {
  size_t begin, first, count;  // `count` weights from `first` on, their biases behind them
  bool gathers;

  explicit Operands(const Op& op)
      : begin(gate_of(op) == Gate::none ? 1 : 2),
        first(begin + 1),
        count(gate_of(op) == Gate::none ? 1 : 2),
        gathers(gate_of(op) != Gate::none) {}
};

// An ExpertLinearDesc and the dtypes that it points to.
struct Description {
  std::array<DType, 2> dtypes{};
  ExpertLinearDesc desc;
};

// `in` and `out`: shapes and dtypes of the operands at capacity, as types or as views.
template <class Operand>
Description describe(const Op& op, std::span<const Operand> in, std::span<const Operand> out,
                     int threads) {
  const Operands at(op);
  Description d;
  for (size_t i = 0; i < at.count; ++i) d.dtypes[i] = in[at.first + i].dtype;
  // A token chooses an expert once: of gathered rows one expert has a row a token at most.
  d.desc = {.rows = out[0].shape[0],
            .rows_of_one = in[0].shape[0],
            .K = in[0].shape[1],
            .weights = {},
            .gate = gate_of(op),
            .threads = threads};
  return d;
}

class BoundExperts {
 public:
  BoundExperts(const LaunchArgs& args, LinearIsa isa)
      : call_(args.call),
        at_(*call_.op),
        description_(describe(*call_.op, call_.in, call_.out, args.threads)),
        scratch_(args.workspace),
        isa_(isa) {
    description_.desc.weights = std::span(description_.dtypes).first(at_.count);
    const bool biased = at_.gathers || !call_.op->attrs.as<ops::ExpertLinearAttrs>().bias_elsewhere;
    for (size_t i = 0; i < at_.count; ++i) {
      const TensorView& bias = call_.in[at_.first + at_.count + i];
      for (int64_t e = 0; biased && bias.data != nullptr && e < bias.shape[0]; ++e) {
        const std::vector<float> row =
            widen({bias.row(e), bias.dtype, {bias.cols()}, bias.row_bytes});
        biases_[i].insert(biases_[i].end(), row.begin(), row.end());
      }
      weights_[i] = {.w = call_.in[at_.first + i],
                     .bias = biases_[i].empty() ? nullptr : biases_[i].data()};
    }
  }
  BoundExperts(const BoundExperts&) = delete;

  void operator()(const Team& team) const {
    const TensorView& x = call_.in[0];
    expert_linear({.x = x.as<const float>(),
                   .ldx = x.cols(),
                   .row = at_.gathers ? call_.in[1].as<const int32_t>() : nullptr,
                   .begin = call_.in[at_.begin].as<const int32_t>(),
                   .weights = std::span(weights_).first(at_.count),
                   .gate = description_.desc.gate,
                   .y = call_.out[0].as<float>(),
                   .ldy = call_.out[0].cols()},
                  description_.desc, isa_, scratch_, team);
  }

 private:
  const OpCall& call_;
  const Operands at_;
  Description description_;
  std::byte* scratch_;
  LinearIsa isa_;
  std::array<std::vector<float>, 2> biases_;
  std::array<ExpertWeight, 2> weights_;
};

Kernel expert_kernel(LinearIsa isa) {
  return {
      .info =
          [isa](const Op& op, TypeList in, TypeList out, int threads) {
            Description d = describe(op, in, out, threads);
            d.desc.weights = std::span(d.dtypes).first(Operands(op).count);
            return KernelInfo{fmt::format("{}.{}", op.def->kind, name(isa)),
                              expert_linear_scratch_bytes(d.desc)};
          },
      .bind =
          [isa](const LaunchArgs& args) {
            auto bound = std::make_shared<BoundExperts>(args, isa);
            return [bound](const Team& team) { (*bound)(team); };
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
