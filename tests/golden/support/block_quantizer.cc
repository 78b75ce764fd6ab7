// Built with -ffp-contract=off: a fused multiply-add would round differently.
#include "golden/support/block_quantizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "braid/base/error.h"
#include "braid/tensor/quant.h"

namespace braid::golden {
namespace {

float divide(float x, float y) {
  return y == 0 ? 0 : x / y;
}

int nearest(float x, int low, int high) {
  return static_cast<int>(
      std::clamp(std::floor(x + 0.5f), static_cast<float>(low), static_cast<float>(high)));
}

// The first element of largest magnitude.
float extreme(const float* x, int count) {
  return *std::max_element(x, x + count,
                           [](float a, float b) { return std::abs(a) < std::abs(b); });
}

// Codes of a 32-element block into nibbles, and their fifth bits where the format has them.
template <class Block>
void put_codes(const uint8_t codes[32], Block* b) {
  for (int i = 0; i < 16; ++i) {
    b->qs[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
  }
  if constexpr (requires { b->qh; }) {
    for (int i = 0; i < 32; ++i) b->qh[i / 8] |= static_cast<uint8_t>((codes[i] >> 4) << (i % 8));
  }
}

// Q4_0 and Q5_0: `half` codes on each side of zero, the extreme value at code 0.
template <class Block>
void quantize_symmetric(const float* x, int half, Block* b) {
  const float d = extreme(x, 32) / static_cast<float>(-half);
  const float inverse = divide(1, d);
  *b = {};
  b->d = to_f16(d);
  uint8_t codes[32];
  for (int i = 0; i < 32; ++i) {
    const float shifted = x[i] * inverse + (static_cast<float>(half) + 0.5f);
    codes[i] = static_cast<uint8_t>(std::clamp(static_cast<int>(shifted), 0, 2 * half - 1));
  }
  put_codes(codes, b);
}

// Q4_1 and Q5_1: codes 0 .. levels from the minimum to the maximum.
template <class Block>
void quantize_range(const float* x, int levels, Block* b) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float d = (*high - *low) / static_cast<float>(levels);
  const float inverse = divide(1, d);
  *b = {};
  b->d = to_f16(d);
  b->m = to_f16(*low);
  uint8_t codes[32];
  for (int i = 0; i < 32; ++i) {
    const float shifted = (x[i] - *low) * inverse + 0.5f;
    codes[i] = static_cast<uint8_t>(std::clamp(static_cast<int>(shifted), 0, levels));
  }
  put_codes(codes, b);
}

void quantize(const float* x, BlockQ4_0* b) {
  quantize_symmetric(x, 8, b);
}
void quantize(const float* x, BlockQ5_0* b) {
  quantize_symmetric(x, 16, b);
}
void quantize(const float* x, BlockQ4_1* b) {
  quantize_range(x, 15, b);
}
void quantize(const float* x, BlockQ5_1* b) {
  quantize_range(x, 31, b);
}

void quantize(const float* x, BlockQ8_0* b) {
  const float d = std::abs(extreme(x, 32)) / 127;
  const float inverse = divide(1, d);
  b->d = to_f16(d);
  for (int i = 0; i < 32; ++i) b->qs[i] = static_cast<int8_t>(std::round(x[i] * inverse));
}

void pack_scales(const uint8_t scales[8], const uint8_t mins[8], uint8_t packed[12]) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(scales[i] | (scales[i + 4] >> 4) << 6);
    packed[i + 4] = static_cast<uint8_t>(mins[i] | (mins[i + 4] >> 4) << 6);
    packed[i + 8] = static_cast<uint8_t>((scales[i + 4] & 15) | (mins[i + 4] & 15) << 4);
  }
}

// Q4_K and Q5_K: x = d * scale * q - dmin * min in groups of 32.
template <class Block>
void quantize_k(const float* x, int levels, Block* b) {
  float step[8], low[8], max_step = 0, max_low = 0;
  for (int g = 0; g < 8; ++g) {
    const auto [least, most] = std::minmax_element(x + 32 * g, x + 32 * g + 32);
    low[g] = -std::min(*least, 0.0f);
    step[g] = (*most + low[g]) / static_cast<float>(levels);
    max_step = std::max(max_step, step[g]);
    max_low = std::max(max_low, low[g]);
  }
  *b = {};
  b->d = to_f16(max_step / 63);
  b->dmin = to_f16(max_low / 63);
  const float d = to_float(b->d), dmin = to_float(b->dmin);
  uint8_t scales[8], mins[8];
  for (int g = 0; g < 8; ++g) {
    scales[g] = static_cast<uint8_t>(nearest(divide(step[g], d), 0, 63));
    mins[g] = static_cast<uint8_t>(nearest(divide(low[g], dmin), 0, 63));
  }
  pack_scales(scales, mins, b->scales);
  for (int i = 0; i < 256; ++i) {
    const int g = i / 32;
    const float shifted = x[i] + dmin * static_cast<float>(mins[g]);
    const int code = nearest(divide(shifted, d * static_cast<float>(scales[g])), 0, levels);
    b->qs[i / 64 * 32 + i % 32] |= static_cast<uint8_t>((code & 15) << (g % 2 * 4));
    if constexpr (requires { b->qh; }) b->qh[i % 32] |= static_cast<uint8_t>((code >> 4) << g);
  }
}

void quantize(const float* x, BlockQ4_K* b) {
  quantize_k(x, 15, b);
}
void quantize(const float* x, BlockQ5_K* b) {
  quantize_k(x, 31, b);
}

void quantize(const float* x, BlockQ6_K* b) {
  float step[16], largest = 0;
  for (int g = 0; g < 16; ++g) {
    step[g] = extreme(x + 16 * g, 16) / -32;
    largest = std::max(largest, std::abs(step[g]));
  }
  *b = {};
  b->d = to_f16(largest / 127);
  const float d = to_float(b->d);
  for (int g = 0; g < 16; ++g) {
    b->scales[g] = static_cast<int8_t>(nearest(divide(step[g], d), -127, 127));
  }
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, lane = i % 32;
    const float scale = d * static_cast<float>(b->scales[i / 16]);
    const int code = nearest(divide(x[i], scale), -32, 31) + 32;
    b->ql[half * 64 + quarter % 2 * 32 + lane] |=
        static_cast<uint8_t>((code & 15) << (quarter / 2 * 4));
    b->qh[half * 32 + lane] |= static_cast<uint8_t>((code >> 4) << (2 * quarter));
  }
}

template <class Block>
std::vector<std::byte> blocks_of(std::span<const float> x, size_t block_elems) {
  std::vector<std::byte> bytes(x.size() / block_elems * sizeof(Block));
  for (size_t i = 0; i < x.size() / block_elems; ++i) {
    Block block;
    quantize(x.data() + i * block_elems, &block);
    std::memcpy(bytes.data() + i * sizeof(Block), &block, sizeof(Block));
  }
  return bytes;
}

}  // namespace

std::vector<std::byte> quantize_blocks(DType dtype, std::span<const float> x) {
  BRAID_CHECK(x.size() % static_cast<size_t>(info(dtype).block_elems) == 0, "{} elements of {}",
              x.size(), name(dtype));
  switch (dtype) {
    case DType::q4_0:
      return blocks_of<BlockQ4_0>(x, 32);
    case DType::q4_1:
      return blocks_of<BlockQ4_1>(x, 32);
    case DType::q5_0:
      return blocks_of<BlockQ5_0>(x, 32);
    case DType::q5_1:
      return blocks_of<BlockQ5_1>(x, 32);
    case DType::q8_0:
      return blocks_of<BlockQ8_0>(x, 32);
    case DType::q4_k:
      return blocks_of<BlockQ4_K>(x, 256);
    case DType::q5_k:
      return blocks_of<BlockQ5_K>(x, 256);
    case DType::q6_k:
      return blocks_of<BlockQ6_K>(x, 256);
    default:
      break;
  }
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(dtype, std::ssize(x))));
  quantize_row(dtype, x.data(), bytes.data(), std::ssize(x));
  return bytes;
}

}  // namespace braid::golden
