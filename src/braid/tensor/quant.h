#pragma once

#include <cstdint>

#include "braid/tensor/dtype.h"
#include "braid/tensor/half.h"

namespace braid {

// GGUF block formats, bit for bit. In the 32-element formats element i of the low half sits in the
// low nibble of qs[i], element i + 16 in the high nibble; a fifth bit of element i is bit i of qh.
struct BlockQ4_0 {
  f16 d;  // x = d * (q - 8)
  uint8_t qs[16];
};
struct BlockQ4_1 {
  f16 d, m;  // x = d * q + m
  uint8_t qs[16];
};
struct BlockQ5_0 {
  f16 d;  // x = d * (q - 16)
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ5_1 {
  f16 d, m;  // x = d * q + m
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ8_0 {
  f16 d;  // x = d * q
  int8_t qs[32];
};

// 256-element super-blocks of eight groups of 32 with 6-bit scales and minima packed in `scales`
// (unpack_scale_min_k): x = d * scale * q - dmin * min.
struct BlockQ4_K {
  f16 d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
struct BlockQ5_K {
  f16 d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
// Sixteen groups of 16 with 8-bit scales: x = d * scale * (q - 32).
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  f16 d;
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);

// Scale and minimum (0..63) for group `group` (0..7) in a Q4_K or Q5_K block.
void unpack_scale_min_k(int group, const uint8_t scales[12], uint8_t* scale, uint8_t* min);

// A row: `elems` consecutive elements in any float or block dtype to f32. The scalar reference for
// every dequantizing kernel. elems is a multiple of the dtype's block.
void dequantize_row(DType dtype, const void* src, float* dst, int64_t elems);

// f32 to f32, f16, bf16 or the 32-element block formats, with round-to-nearest of each block's
// best-range scale. K-formats are read-only here: fails with kUnsupported.
void quantize_row(DType dtype, const float* src, void* dst, int64_t elems);

}  // namespace braid
