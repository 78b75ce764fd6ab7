#pragma once

#include <bit>
#include <cstdint>

namespace braid {

// Storage of 16-bit floats as plain bits; arithmetic happens in f32.
struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

inline float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

// Round to nearest even; NaN stays NaN.
inline bf16 to_bf16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}

#ifdef __FLT16_MANT_DIG__
inline float to_float(f16 x) {
  return static_cast<float>(std::bit_cast<_Float16>(x.bits));
}
inline f16 to_f16(float x) {
  return {std::bit_cast<uint16_t>(static_cast<_Float16>(x))};
}
#else
#error "braid needs a compiler with _Float16 (gcc 12, clang 15 or newer)"
#endif

}  // namespace braid
