#include "braid/kernels/cpu/linear/packs.h"

namespace braid::cpu::linear_detail {

const Kernels& kernels(LinearIsa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case LinearIsa::avx2:
      return avx2::linear_kernels();
    case LinearIsa::avx2_vnni:
      return avx2_vnni::linear_kernels();
    case LinearIsa::avx512:
      return avx512::linear_kernels();
    case LinearIsa::avx512_vnni:
      return avx512_vnni::linear_kernels();
#endif
    default:
      return baseline::linear_kernels();
  }
}

Activation activation_of(Gate gate) {
  switch (gate) {
    case Gate::silu:
      return Activation::silu;
    case Gate::gelu_tanh:
      return Activation::gelu_tanh;
    case Gate::none:
      break;
  }
  return Activation::none;
}

}  // namespace braid::cpu::linear_detail
