#pragma once

#include <array>
#include <vector>

#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/linear/expert_linear.h"
#include "braid/ops/experts.h"

namespace braid::cpu {

// Positions of an expert product's operands among an op's inputs, and its kind.
struct ExpertOperands {
  static constexpr size_t kNone = ~size_t{0};
  size_t x = 0;
  size_t token = kNone;  // the row of x for each row; none: row r reads r
  size_t begin = 0;
  size_t weights = 0;  // the weights, one or with a gate two, then as many biases
  Gate gate = Gate::none;
  bool biased = true;

  size_t count() const { return gate == Gate::none ? 1 : 2; }
};

// Most rows in a call, in all and for an expert.
struct ExpertRows {
  int64_t all = 0, of_one = 0;
};

// An ExpertLinearDesc with its dtypes.
struct ExpertProductDesc {
  // `in`: shapes and dtypes of the op's inputs, as types or as views.
  template <class Operand>
  ExpertProductDesc(const ExpertOperands& at, std::span<const Operand> in, const ExpertRows& rows,
                    int threads) {
    for (size_t i = 0; i < at.count(); ++i) dtypes[i] = in[at.weights + i].dtype;
    desc = {.rows = rows.all,
            .rows_of_one = rows.of_one,
            .K = in[at.x].shape[1],
            .weights = std::span(dtypes).first(at.count()),
            .gate = at.gate,
            .threads = threads};
  }
  ExpertProductDesc(const ExpertProductDesc&) = delete;

  std::array<DType, 2> dtypes{};
  ExpertLinearDesc desc;
};

// An expert product that is bound: weights, and biases in f32.
class ExpertProduct {
 public:
  ExpertProduct(const LaunchArgs& args, const ExpertOperands& at, const ExpertRows& rows,
                LinearIsa isa, std::byte* scratch)
      : call_(args.call),
        at_(at),
        desc_(at, std::span(call_.in), rows, args.threads),
        scratch_(scratch),
        isa_(isa) {
    for (size_t i = 0; i < at.count(); ++i) {
      const TensorView& bias = call_.in[at.weights + at.count() + i];
      for (int64_t e = 0; at.biased && bias.data != nullptr && e < bias.shape[0]; ++e) {
        const std::vector<float> row =
            widen({bias.row(e), bias.dtype, {bias.cols()}, bias.row_bytes});
        biases_[i].insert(biases_[i].end(), row.begin(), row.end());
      }
      weights_[i] = {.w = call_.in[at.weights + i],
                     .bias = biases_[i].empty() ? nullptr : biases_[i].data()};
    }
  }
  ExpertProduct(const ExpertProduct&) = delete;

  // y [R, N]; over all rows, or a tile's alone (ExpertLinearParams::first).
  void run(const Team& team, float* y, const int32_t* begin, const int32_t* first = nullptr) const {
    const TensorView& x = call_.in[at_.x];
    const bool gathers = at_.token != ExpertOperands::kNone;
    expert_linear({.x = x.as<const float>(),
                   .ldx = x.cols(),
                   .row = gathers ? call_.in[at_.token].as<const int32_t>() : nullptr,
                   .begin = begin,
                   .first = first,
                   .weights = std::span(weights_).first(at_.count()),
                   .gate = at_.gate,
                   .y = y,
                   .ldy = weights_[0].w.shape[1]},
                  desc_.desc, isa_, scratch_, team);
  }
  void run(const Team& team, float* y) const {
    run(team, y, call_.in[at_.begin].as<const int32_t>());
  }

 private:
  const OpCall& call_;
  const ExpertOperands at_;
  const ExpertProductDesc desc_;
  std::byte* const scratch_;
  const LinearIsa isa_;
  std::array<std::vector<float>, 2> biases_;
  std::array<ExpertWeight, 2> weights_;
};

inline Gate gate_of(ops::Activation activation) {
  return activation == ops::Activation::silu ? Gate::silu : Gate::gelu_tanh;
}

}  // namespace braid::cpu
