#pragma once

#include <type_traits>

#include "braid/kernels/cuda/thinning/device/scores.cuh"

// The forms of kernels over tiles of scores, by q's dtype and head dim.
namespace braid::cuda {

// Calls f(T, tensor cores or not) with the form that takes such heads.
template <class F>
void with_form(DType dtype, int64_t D, const F& f) {
  const bool tensor = D % 8 == 0;
  if (dtype == DType::f32) return f(float(), std::false_type());
  if (dtype == DType::bf16) {
    return tensor ? f(__nv_bfloat16(), std::true_type()) : f(__nv_bfloat16(), std::false_type());
  }
  return tensor ? f(__half(), std::true_type()) : f(__half(), std::false_type());
}

}  // namespace braid::cuda
