#pragma once

#include "braid/backend/cuda/kernel_table.h"
#include "braid/ops/norm_linear.h"

// Linear layers of many tokens: products by cuBLASLt, of weights that are made bf16 on the way.
namespace braid::cuda {

// The operands of linear, gated_linear and norm_linear by what they are.
class LinearOperands {
 public:
  explicit LinearOperands(const OpCall& call)
      : call_(call), first_(normed() ? 3 : 1), first_out_(normed() && call.in[1].data ? 1 : 0) {}

  bool normed() const { return call_.op->def == &ops::kNormLinear; }
  bool gated() const {
    return call_.op->def == &ops::kGatedLinear ||
           (normed() && call_.attrs<ops::NormLinearAttrs>().gated);
  }
  ops::Activation activation() const {
    if (!gated()) return ops::Activation::silu;
    return normed() ? call_.attrs<ops::NormLinearAttrs>().activation
                    : call_.attrs<ops::GatedAttrs>().activation;
  }
  size_t weights() const { return (call_.in.size() - first_) / 2; }
  const TensorView& x() const { return call_.in[0]; }  // of norm_linear: a
  const TensorView& weight(size_t i) const { return call_.in[first_ + i]; }
  // Absent also where another rank adds it.
  TensorView bias(size_t i) const {
    return bias_elsewhere() ? TensorView{} : call_.in[first_ + weights() + i];
  }
  // A gated pair has one output.
  const TensorView& y(size_t i) const { return call_.out[first_out_ + (gated() ? 0 : i)]; }

 private:
  bool bias_elsewhere() const {
    if (normed()) return call_.attrs<ops::NormLinearAttrs>().linear.bias_elsewhere;
    return !gated() && call_.attrs<ops::LinearAttrs>().bias_elsewhere;
  }

  const OpCall& call_;
  const size_t first_;      // of the weights
  const size_t first_out_;  // of the products
};

// The products that launches of the same shape on one GPU share.
class GemmStore;
std::shared_ptr<GemmStore> make_gemm_store();

// Whether this machine has the library.
bool gemm_available();
KernelInfo gemm_info(const Op& op, TypeList in, TypeList out);
// The first bind of a shape runs its product once. The store outlives the launch.
BoundKernel bind_gemm(const LaunchArgs& args, GemmStore& store);

}  // namespace braid::cuda
