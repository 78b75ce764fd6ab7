// Binds linear and gated_linear to kernels/cpu/linear.
#include <algorithm>
#include <array>

#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/linear/linear.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/linear.h"

namespace braid::cpu {
namespace {

Gate gate_of(const Op& op) {
  if (op.def != &ops::kGatedLinear) return Gate::none;
  return op.attrs.as<ops::GatedAttrs>().activation == ops::Activation::silu ? Gate::silu
                                                                            : Gate::gelu_tanh;
}

size_t weight_count(const Op& op) {
  return (op.inputs.size() - 1) / 2;
}

// A LinearDesc with its weights.
struct Description {
  std::vector<LinearDesc::Weight> weights;
  LinearDesc desc;

  Description(const Op& op, int64_t M, int64_t K, int threads) {
    desc = {.M = M, .K = K, .gate = gate_of(op), .threads = threads};
  }
  const LinearDesc& with(DType dtype, int64_t N) {
    weights.push_back({dtype, N});
    desc.weights = weights;
    return desc;
  }
};

KernelInfo describe(const Op& op, TypeList in, int threads, LinearIsa isa) {
  Description d(op, in[0].shape[0], in[0].shape[1], threads);
  for (size_t i = 0; i < weight_count(op); ++i) d.with(in[1 + i].dtype, in[1 + i].shape[0]);
  return {fmt::format("{}.{}", op.def->kind, name(isa)), linear_scratch_bytes(d.desc, isa)};
}

// The parameters of a launch: binding fixes all but M.
class BoundLinear {
 public:
  BoundLinear(const LaunchArgs& args, LinearIsa isa)
      : call_(args.call),
        scratch_(args.workspace),
        isa_(isa),
        description_(*args.call.op, 0, args.call.in[0].cols(), args.threads) {
    const Op& op = *call_.op;
    const size_t n = weight_count(op);
    const bool with_bias =
        op.def == &ops::kGatedLinear || !op.attrs.as<ops::LinearAttrs>().bias_elsewhere;
    for (size_t i = 0; i < n; ++i) {
      const TensorView& w = call_.in[1 + i];
      description_.with(w.dtype, w.shape[0]);
      weights_.push_back({.w = w,
                          .bias = with_bias ? f32_row(call_.in[1 + n + i], i) : nullptr,
                          .ldy = y_of(i).cols()});
    }
    description_.desc.weights = description_.weights;
    BRAID_CHECK(n <= kMaxWeights, "{} weights in one linear", n);
  }

  void operator()(const Team& team) const {
    std::array<LinearWeight, kMaxWeights> weights;
    std::ranges::copy(weights_, weights.begin());
    for (size_t i = 0; i < weights_.size(); ++i) weights[i].y = y_of(i).as<float>();
    LinearDesc desc = description_.desc;
    desc.M = call_.rows();
    const TensorView& x = call_.in[0];
    linear({.x = x.as<const float>(),
            .ldx = x.cols(),
            .M = desc.M,
            .K = desc.K,
            .weights = std::span(weights).first(weights_.size()),
            .gate = desc.gate},
           choose_linear(desc, isa_), scratch_, team);
  }

 private:
  static constexpr size_t kMaxWeights = 4;

  // A gated pair has one output.
  const TensorView& y_of(size_t i) const { return call_.out[std::min(i, call_.out.size() - 1)]; }

  // Biases of 16-bit models are widened once.
  const float* f32_row(const TensorView& bias, size_t index) {
    if (bias.data == nullptr) return nullptr;
    if (bias.dtype == DType::f32) return bias.as<const float>();
    biases_.resize(std::max(biases_.size(), index + 1));
    biases_[index] = widen(bias);
    return biases_[index].data();
  }

  const OpCall& call_;
  std::byte* scratch_;
  LinearIsa isa_;
  Description description_;
  std::vector<LinearWeight> weights_;
  std::vector<std::vector<float>> biases_;
};

}  // namespace

void add_linear_kernels(KernelTable& table, Isa cap) {
  const LinearIsa isa = best_linear_isa(cap);
  const Kernel kernel = {
      .info = [isa](const Op& op, TypeList in, TypeList,
                    int threads) { return describe(op, in, threads, isa); },
      .bind =
          [isa](const LaunchArgs& args) {
            auto bound = std::make_shared<BoundLinear>(args, isa);
            return [bound](const Team& team) { (*bound)(team); };
          },
  };
  table.add(ops::kLinear.kind, kernel);
  table.add(ops::kGatedLinear.kind, kernel);
}

}  // namespace braid::cpu
