#pragma once

#include "braid/base/error.h"
#include "braid/tensor/dtype.h"

namespace braid::cuda {

// f.operator()<dtype>() for a dtype of weights.
template <class F>
void with_dtype(DType dtype, F&& f) {
#define BRAID_CASE(type) \
  case DType::type:      \
    return f.template operator()<DType::type>();
  switch (dtype) {
    BRAID_CASE(f32)
    BRAID_CASE(f16)
    BRAID_CASE(bf16)
    BRAID_CASE(q4_0)
    BRAID_CASE(q4_1)
    BRAID_CASE(q5_0)
    BRAID_CASE(q5_1)
    BRAID_CASE(q8_0)
    BRAID_CASE(q4_k)
    BRAID_CASE(q5_k)
    BRAID_CASE(q6_k)
    case DType::i32:
      break;
  }
#undef BRAID_CASE
  BRAID_CHECK(false, "weights of {}", name(dtype));
}

}  // namespace braid::cuda
