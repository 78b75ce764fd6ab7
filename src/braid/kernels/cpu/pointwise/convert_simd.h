#pragma once

#include "braid/kernels/cpu/simd/vec.h"
#include "braid/tensor/dtype.h"

namespace braid::cpu::BRAID_ISA {

template <class T>
BRAID_INLINE void convert_to(const float* src, T* dst, int64_t n) {
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) store(dst + i, load(src + i));
  if (const int tail = static_cast<int>(n - whole)) {
    store_n(dst + whole, load_n(src + whole, tail), tail);
  }
}

// dst[offset .. offset + n) of a float dtype = src, rounded to nearest even.
BRAID_INLINE void convert_row(const float* src, void* dst, DType dtype, int64_t offset, int64_t n) {
  switch (dtype) {
    case DType::f16:
      return convert_to(src, static_cast<f16*>(dst) + offset, n);
    case DType::bf16:
      return convert_to(src, static_cast<bf16*>(dst) + offset, n);
    default:
      return convert_to(src, static_cast<float*>(dst) + offset, n);
  }
}

}  // namespace braid::cpu::BRAID_ISA
