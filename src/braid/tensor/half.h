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
#else  // compilers without _Float16 (clang 14): the same bits, by way of the exponent
inline float to_float(f16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  const uint32_t rest = x.bits & 0x7fff;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ff) << 13);
  // Times 2^112 moves the exponent's bias from 15 to 127, subnormals included.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign);
}
inline f16 to_f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(u >> 16 & 0x8000);
  const uint32_t rest = u & 0x7fffffffu;
  if (rest > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00 | (rest >> 13 & 0x3ff))};
  if (rest >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00)};  // rounds past 65504
  if (rest < 0x38800000u) {  // subnormal: adding 0.5 rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = rest + 0xfff + (rest >> 13 & 1) - (112u << 23);
  return {static_cast<uint16_t>(sign | rounded >> 13)};
}
#endif

}  // namespace braid
