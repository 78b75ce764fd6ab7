#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "braid/backend/cuda/kernel_table.h"
#include "braid/kernels/cuda/linear/device/gemm.h"
#include "braid/ops/norm_linear.h"

// Linear layers for many tokens: products by cuBLASLt; weights are made bf16 on the way.
namespace braid::cuda {

// The operands of linear, gated_linear and norm_linear, by role.
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
  // Absent also if another rank adds it.
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

// Products shared by launches with the same shape on a GPU, while any launch holds them.
class GemmStore {
 public:
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // a product's, at most

  // Made, and run once on `pointers`, when it is first asked for. With rows that repay it, of
  // values on `axis`, after a search for the fastest algorithm; else by the library's first choice.
  std::shared_ptr<Gemm> get(const GemmDesc& desc, const GemmPointers& pointers,
                            BatchAxis axis = BatchAxis::none);
  int64_t searches() const { return searches_; }  // so far

 private:
  std::shared_ptr<const CublasLt> library_;
  std::map<std::string, std::weak_ptr<Gemm>> gemms_;
  int64_t searches_ = 0;
};

// Whether this machine has the library.
bool gemm_available();
// The operands' type of a product that goes to the library at any number of rows; none: kernels for
// few tokens may take the product. Without a batch axis: f32 where x and weights are f32, f16 where
// weights are f16 and x is f16 or f32.
std::optional<DType> dense_product(TypeList in);
KernelInfo gemm_info(const Op& op, TypeList in, TypeList out);
// A shape's first bind runs its product once. The store outlives the launch.
BoundKernel bind_gemm(const LaunchArgs& args, GemmStore& store);

}  // namespace braid::cuda
