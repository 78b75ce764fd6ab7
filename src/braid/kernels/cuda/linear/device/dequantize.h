#pragma once

#include <cstdint>

#include "braid/backend/cuda/launch.h"
#include "braid/tensor/dtype.h"

namespace braid::cuda {

// A weight of any dtype as bf16, for products of plain numbers: dequantized in f32, rounded to
// nearest even; the bits of dequantize_row and to_bf16. All memory is the device's.
struct DequantizeParams {
  const void* w = nullptr;  // [n, k] in dtype, rows of whole blocks, each row at an even address
  DType dtype = DType::bf16;
  int64_t row_bytes = 0;   // from row to row
  void* out = nullptr;     // bf16 [n, k]
  int64_t out_stride = 0;  // elements
  int64_t n = 0;
  int64_t k = 0;
};

// Reads w once and writes out once, at memory speed. `w` counts as constant: reads of w may precede
// the end of the launch ahead, writes of out may not.
void dequantize(const DequantizeParams& params, LaunchContext context);

}  // namespace braid::cuda
