#include "braid/tensor/quant.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "braid/base/error.h"

namespace braid {
namespace {

int fifth_bit(const uint8_t qh[4], int i) {
  return ((qh[i / 8] >> (i % 8)) & 1) << 4;
}

int nibble(const uint8_t qs[16], int i) {
  return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}

void dequantize(const BlockQ4_0& b, float* y) {
  const float d = to_float(b.d);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(nibble(b.qs, i) - 8);
}

void dequantize(const BlockQ4_1& b, float* y) {
  const float d = to_float(b.d), m = to_float(b.m);
  for (int i = 0; i < 32; ++i) {
    y[i] = d * static_cast<float>(nibble(b.qs, i)) + m;
  }
}

void dequantize(const BlockQ5_0& b, float* y) {
  const float d = to_float(b.d);
  for (int i = 0; i < 32; ++i) {
    const int q = (nibble(b.qs, i) | fifth_bit(b.qh, i)) - 16;
    y[i] = d * static_cast<float>(q);
  }
}

void dequantize(const BlockQ5_1& b, float* y) {
  const float d = to_float(b.d), m = to_float(b.m);
  for (int i = 0; i < 32; ++i) {
    const int q = nibble(b.qs, i) | fifth_bit(b.qh, i);
    y[i] = d * static_cast<float>(q) + m;
  }
}

void dequantize(const BlockQ8_0& b, float* y) {
  const float d = to_float(b.d);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(b.qs[i]);
}

// Q4_K and Q5_K: groups 2j and 2j + 1 are the low and high nibbles of qs[32j .. 32j + 31].
void dequantize(const BlockQ4_K& b, float* y) {
  const float d = to_float(b.d), dmin = to_float(b.dmin);
  for (int i = 0; i < 256; ++i) {
    uint8_t scale, min;
    unpack_scale_min_k(i / 32, b.scales, &scale, &min);
    const uint8_t packed = b.qs[i / 64 * 32 + i % 32];
    const int q = i / 32 % 2 == 0 ? packed & 15 : packed >> 4;
    y[i] = d * scale * static_cast<float>(q) - dmin * min;
  }
}

void dequantize(const BlockQ5_K& b, float* y) {
  const float d = to_float(b.d), dmin = to_float(b.dmin);
  for (int i = 0; i < 256; ++i) {
    uint8_t scale, min;
    unpack_scale_min_k(i / 32, b.scales, &scale, &min);
    const uint8_t packed = b.qs[i / 64 * 32 + i % 32];
    const int low = i / 32 % 2 == 0 ? packed & 15 : packed >> 4;
    const int q = low | ((b.qh[i % 32] >> (i / 32)) & 1) << 4;
    y[i] = d * scale * static_cast<float>(q) - dmin * min;
  }
}

// In each half with 128 elements, quarter k takes nibbles from ql and bits 2k, 2k + 1 of qh.
void dequantize(const BlockQ6_K& b, float* y) {
  const float d = to_float(b.d);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, lane = i % 32;
    const uint8_t packed = b.ql[half * 64 + quarter % 2 * 32 + lane];
    const int low = quarter < 2 ? packed & 15 : packed >> 4;
    const int high = (b.qh[half * 32 + lane] >> (2 * quarter)) & 3;
    const int q = (low | high << 4) - 32;
    const int8_t scale = b.scales[i / 16];
    y[i] = d * scale * static_cast<float>(q);
  }
}

template <class Block>
void dequantize_blocks(const void* src, float* dst, int64_t elems) {
  constexpr int kElems = sizeof(Block) >= 144 ? 256 : 32;
  const auto* blocks = static_cast<const Block*>(src);
  for (int64_t i = 0; i < elems / kElems; ++i) dequantize(blocks[i], dst + i * kElems);
}

// The code for x on a grid with step d, clamped to [low, high].
int code(float x, float inverse_step, int low, int high) {
  return std::clamp(static_cast<int>(std::lround(x * inverse_step)), low, high);
}

float inverse(float d) {
  return d == 0 ? 0 : 1 / d;
}

// The value with the largest magnitude, with its sign: this value lands exactly on the grid's
// longer, negative end.
float extreme(const float* x) {
  return *std::max_element(x, x + 32, [](float a, float b) { return std::abs(a) < std::abs(b); });
}

void put_nibble(uint8_t qs[16], int i, int q) {
  if (i < 16) {
    qs[i] = static_cast<uint8_t>((qs[i] & 0xf0) | q);
  } else {
    qs[i - 16] = static_cast<uint8_t>((qs[i - 16] & 0x0f) | q << 4);
  }
}

void put_fifth_bit(uint8_t qh[4], int i, int q) {
  if (q & 16) qh[i / 8] = static_cast<uint8_t>(qh[i / 8] | 1 << (i % 8));
}

void quantize(const float* x, BlockQ4_0* b) {
  const float d = extreme(x) / -8;
  *b = {.d = to_f16(d), .qs = {}};
  for (int i = 0; i < 32; ++i) put_nibble(b->qs, i, code(x[i], inverse(d), -8, 7) + 8);
}

void quantize(const float* x, BlockQ4_1* b) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float d = (*high - *low) / 15;
  *b = {.d = to_f16(d), .m = to_f16(*low), .qs = {}};
  for (int i = 0; i < 32; ++i) put_nibble(b->qs, i, code(x[i] - *low, inverse(d), 0, 15));
}

void quantize(const float* x, BlockQ5_0* b) {
  const float d = extreme(x) / -16;
  *b = {.d = to_f16(d), .qh = {}, .qs = {}};
  for (int i = 0; i < 32; ++i) {
    const int q = code(x[i], inverse(d), -16, 15) + 16;
    put_nibble(b->qs, i, q & 15);
    put_fifth_bit(b->qh, i, q);
  }
}

void quantize(const float* x, BlockQ5_1* b) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float d = (*high - *low) / 31;
  *b = {.d = to_f16(d), .m = to_f16(*low), .qh = {}, .qs = {}};
  for (int i = 0; i < 32; ++i) {
    const int q = code(x[i] - *low, inverse(d), 0, 31);
    put_nibble(b->qs, i, q & 15);
    put_fifth_bit(b->qh, i, q);
  }
}

void quantize(const float* x, BlockQ8_0* b) {
  const float d = std::abs(extreme(x)) / 127;
  b->d = to_f16(d);
  for (int i = 0; i < 32; ++i) b->qs[i] = static_cast<int8_t>(code(x[i], inverse(d), -127, 127));
}

// As to_float, in a form that compilers vectorize for every CPU.
float widened(f16 x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  // Times 2^112 moves the exponent's bias from 15 to 127, subnormals included.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  const uint32_t special = (rest >= 0x7c00 ? 0x7f800000u : 0) | (rest > 0x7c00 ? 0x400000u : 0);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

template <class Block>
void quantize_blocks(const float* src, void* dst, int64_t elems) {
  auto* blocks = static_cast<Block*>(dst);
  for (int64_t i = 0; i < elems / 32; ++i) quantize(src + i * 32, &blocks[i]);
}

}  // namespace

void unpack_scale_min_k(int group, const uint8_t scales[12], uint8_t* scale, uint8_t* min) {
  if (group < 4) {
    *scale = scales[group] & 63;
    *min = scales[group + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((scales[group + 4] & 15) | (scales[group - 4] >> 6) << 4);
    *min = static_cast<uint8_t>((scales[group + 4] >> 4) | (scales[group] >> 6) << 4);
  }
}

void dequantize_row(DType dtype, const void* src, float* dst, int64_t elems) {
  BRAID_CHECK(elems % info(dtype).block_elems == 0, "{} elements of {}", elems, name(dtype));
  switch (dtype) {
    case DType::f32:
      std::copy_n(static_cast<const float*>(src), elems, dst);
      return;
    case DType::f16:
      for (int64_t i = 0; i < elems; ++i) dst[i] = widened(static_cast<const f16*>(src)[i]);
      return;
    case DType::bf16:
      for (int64_t i = 0; i < elems; ++i) dst[i] = to_float(static_cast<const bf16*>(src)[i]);
      return;
    case DType::q4_0:
      return dequantize_blocks<BlockQ4_0>(src, dst, elems);
    case DType::q4_1:
      return dequantize_blocks<BlockQ4_1>(src, dst, elems);
    case DType::q5_0:
      return dequantize_blocks<BlockQ5_0>(src, dst, elems);
    case DType::q5_1:
      return dequantize_blocks<BlockQ5_1>(src, dst, elems);
    case DType::q8_0:
      return dequantize_blocks<BlockQ8_0>(src, dst, elems);
    case DType::q4_k:
      return dequantize_blocks<BlockQ4_K>(src, dst, elems);
    case DType::q5_k:
      return dequantize_blocks<BlockQ5_K>(src, dst, elems);
    case DType::q6_k:
      return dequantize_blocks<BlockQ6_K>(src, dst, elems);
    case DType::i32:
      break;
  }
  BRAID_CHECK(false, "dequantize_row of {}", name(dtype));
}

void quantize_row(DType dtype, const float* src, void* dst, int64_t elems) {
  BRAID_CHECK(elems % info(dtype).block_elems == 0, "{} elements of {}", elems, name(dtype));
  switch (dtype) {
    case DType::f32:
      std::copy_n(src, elems, static_cast<float*>(dst));
      return;
    case DType::f16:
      for (int64_t i = 0; i < elems; ++i) static_cast<f16*>(dst)[i] = to_f16(src[i]);
      return;
    case DType::bf16:
      for (int64_t i = 0; i < elems; ++i) static_cast<bf16*>(dst)[i] = to_bf16(src[i]);
      return;
    case DType::q4_0:
      return quantize_blocks<BlockQ4_0>(src, dst, elems);
    case DType::q4_1:
      return quantize_blocks<BlockQ4_1>(src, dst, elems);
    case DType::q5_0:
      return quantize_blocks<BlockQ5_0>(src, dst, elems);
    case DType::q5_1:
      return quantize_blocks<BlockQ5_1>(src, dst, elems);
    case DType::q8_0:
      return quantize_blocks<BlockQ8_0>(src, dst, elems);
    default:
      fail(ErrorCode::kUnsupported, "cannot write {}: Braid only reads this format", name(dtype));
  }
}

}  // namespace braid
