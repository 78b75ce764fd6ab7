#pragma once

// The integer side of simd/vec.h: kLanes weight rows side by side, a dword (four 8-bit codes, or a
// pair of f16) per row. For *_simd.cc only.

#include <cstddef>

#include "braid/kernels/cpu/linear/kernels.h"
#include "braid/kernels/cpu/simd/vec.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace braid::cpu::BRAID_ISA {

typedef uint32_t VecU __attribute__((vector_size(kLanes * 4)));

// Range of each step of the machine's 8-bit product. With VNNI: any unsigned code. Without VNNI
// pairs are added in 16 bits, and codes above 127 could overflow: 8-bit codes then stay signed, and
// their sign moves over to x.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr bool kWideCodes = true;
#else
constexpr bool kWideCodes = false;
#endif

BRAID_INLINE VecI splat_i(int32_t x) {
  return x - VecI{};
}
BRAID_INLINE VecI load_i(const void* p) {
  VecI v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
BRAID_INLINE void store_i(void* p, VecI v) {
  std::memcpy(p, &v, sizeof(v));
}
BRAID_INLINE VecI broadcast_i(const void* p) {
  int32_t x;
  std::memcpy(&x, p, sizeof(x));
  return splat_i(x);
}
BRAID_INLINE Vec broadcast(const void* p) {
  float x;
  std::memcpy(&x, p, sizeof(x));
  return splat(x);
}
BRAID_INLINE Vec to_f32(VecI v) {
  return __builtin_convertvector(v, Vec);
}
// v times kDigitBase.
BRAID_INLINE VecI next_digit(VecI v) {
  static_assert(linear_detail::kDigitBase == 255);
  return (v << 8) - v;
}
BRAID_INLINE VecI shift_right(VecI v, int bits) {
  return reinterpret_cast<VecI>(reinterpret_cast<VecU>(v) >> bits);
}

// acc[i] += sum over the four bytes j of codes[i][j] * x[i][j]. x is signed, |x| <= 127. codes are
// unsigned, up to 127 if !kWideCodes; with kSigned (only if !kWideCodes) codes are signed.
template <bool kSigned>
BRAID_INLINE VecI dot4(VecI acc, VecI codes, VecI x) {
#if defined(__AVX512VNNI__)
  static_assert(!kSigned);
  return (VecI)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)codes, (__m512i)x);
#elif defined(__AVXVNNI__)
  static_assert(!kSigned);
  return (VecI)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)codes, (__m256i)x);
#elif defined(__AVX512F__)
  __m512i c = (__m512i)codes, y = (__m512i)x;
  if constexpr (kSigned) {
    y = _mm512_mask_sub_epi8(y, _mm512_movepi8_mask(c), _mm512_setzero_si512(), y);
    c = _mm512_abs_epi8(c);
  }
  const __m512i pairs = _mm512_maddubs_epi16(c, y);
  return acc + (VecI)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVX2__)
  __m256i c = (__m256i)codes, y = (__m256i)x;
  if constexpr (kSigned) {
    y = _mm256_sign_epi8(y, c);
    c = _mm256_abs_epi8(c);
  }
  const __m256i pairs = _mm256_maddubs_epi16(c, y);
  return acc + (VecI)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined(__SSE2__)
  const __m128i c = (__m128i)codes, y = (__m128i)x, low = _mm_set1_epi16(0xff);
  const auto even = [](__m128i v) __attribute__((always_inline)) {
    return _mm_srai_epi16(_mm_slli_epi16(v, 8), 8);
  };
  const __m128i c_even = kSigned ? even(c) : _mm_and_si128(c, low);
  const __m128i c_odd = kSigned ? _mm_srai_epi16(c, 8) : _mm_srli_epi16(c, 8);
  return acc + (VecI)_mm_madd_epi16(c_even, even(y)) +
         (VecI)_mm_madd_epi16(c_odd, _mm_srai_epi16(y, 8));
#else
  for (int byte = 0; byte < 4; ++byte) {
    const VecI code =
        kSigned ? (codes << (24 - 8 * byte)) >> 24 : shift_right(codes, 8 * byte) & splat_i(0xff);
    acc += code * ((x << (24 - 8 * byte)) >> 24);
  }
  return acc;
#endif
}

typedef int16_t VecS __attribute__((vector_size(kLanes * 4)));

// acc[i] += the sum over both words j of w[i][j] * x[i][j], signed.
BRAID_INLINE VecI dot2(VecI acc, VecI w, VecI x) {
#if defined(__AVX512VNNI__)
  return (VecI)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)w, (__m512i)x);
#elif defined(__AVXVNNI__)
  return (VecI)_mm256_dpwssd_avx_epi32((__m256i)acc, (__m256i)w, (__m256i)x);
#elif defined(__AVX512F__)
  return acc + (VecI)_mm512_madd_epi16((__m512i)w, (__m512i)x);
#elif defined(__AVX2__)
  return acc + (VecI)_mm256_madd_epi16((__m256i)w, (__m256i)x);
#elif defined(__SSE2__)
  return acc + (VecI)_mm_madd_epi16((__m128i)w, (__m128i)x);
#else
  return acc + ((w << 16) >> 16) * ((x << 16) >> 16) + (w >> 16) * (x >> 16);
#endif
}

// Codes of four columns, a byte each, as words: columns 0 and 2 in `even`, 1 and 3 in `odd`, less a
// constant.
template <bool kSigned>
BRAID_INLINE void to_words(VecI codes, int16_t constant, VecI& even, VecI& odd) {
  const VecS bytes = reinterpret_cast<VecS>(codes);
  if constexpr (kSigned) {
    even = reinterpret_cast<VecI>((bytes << 8) >> 8);
    odd = reinterpret_cast<VecI>(bytes >> 8);
  } else {
    even = reinterpret_cast<VecI>((bytes & 0xff) - constant);
    odd = reinterpret_cast<VecI>(((bytes >> 8) & 0xff) - constant);
  }
}

// Without VNNI dot4 takes three instructions, two for additions in 32 bits. Products of codes up to
// 6 bits are first added in 16 bits, kPairSteps steps of two each: 2 * 2 * 63 * 127 < 2^15. More
// steps of narrower codes measured slower.
constexpr int kPairSteps = 2;
constexpr bool adds_pairs(int code_bits) {
  return !kWideCodes && code_bits <= 6;
}

// One such step: pairs[j], 16 bits each, += codes[2j] * x[2j] + codes[2j + 1] * x[2j + 1].
BRAID_INLINE VecI add_pairs(VecI pairs, VecI codes, VecI x) {
#if defined(__AVX512F__)
  return (VecI)_mm512_add_epi16((__m512i)pairs, _mm512_maddubs_epi16((__m512i)codes, (__m512i)x));
#elif defined(__AVX2__)
  return (VecI)_mm256_add_epi16((__m256i)pairs, _mm256_maddubs_epi16((__m256i)codes, (__m256i)x));
#else
  const VecS c = (VecS)codes, y = (VecS)x;  // codes below 128: no sign to mind
  return (VecI)((VecS)pairs + (c & 0xff) * ((y << 8) >> 8) + (c >> 8) * (y >> 8));
#endif
}
// acc += factor * (the two sums of 16 bits).
BRAID_INLINE VecI widen_pairs(VecI acc, VecI pairs, int16_t factor) {
#if defined(__AVX512F__)
  return acc + (VecI)_mm512_madd_epi16((__m512i)pairs, _mm512_set1_epi16(factor));
#elif defined(__AVX2__)
  return acc + (VecI)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(factor));
#elif defined(__SSE2__)
  return acc + (VecI)_mm_madd_epi16((__m128i)pairs, _mm_set1_epi16(factor));
#else
  return acc + (((pairs << 16) >> 16) + (pairs >> 16)) * factor;
#endif
}

// Rows first..first + kLanes - 1 of a weight, `stride` bytes apart, read at a common place that
// moves along the rows.
class StridedRows {
 public:
  BRAID_INLINE StridedRows(const std::byte* data, int64_t stride, int first, int)
      : stride_(stride), stride3_(3 * stride) {
    for (int i = 0; i < kLanes / 4; ++i) base_[i] = data + (first + 4 * i) * stride;
  }
  BRAID_INLINE const std::byte* at(int row, int offset) const {
    const std::byte* base = base_[row / 4] + offset;
    return row % 4 == 3 ? base + stride3_ : base + row % 4 * stride_;
  }
  BRAID_INLINE void advance(int64_t bytes) {
    for (int i = 0; i < kLanes / 4; ++i) base_[i] += bytes;
  }

 private:
  const std::byte* base_[kLanes / 4];
  int64_t stride_, stride3_;
};

// The same where only `valid` (1 or more) rows exist: the others repeat the last.
class ClampedRows {
 public:
  BRAID_INLINE ClampedRows(const std::byte* data, int64_t stride, int first, int valid) {
    for (int i = 0; i < kLanes; ++i) {
      row_[i] = data + (first + i < valid ? first + i : valid - 1) * stride;
    }
  }
  BRAID_INLINE const std::byte* at(int row, int offset) const { return row_[row] + offset; }
  BRAID_INLINE void advance(int64_t bytes) {
    for (int i = 0; i < kLanes; ++i) row_[i] += bytes;
  }

 private:
  const std::byte* row_[kLanes];
};

// Each row's dword at `offset`.
template <class Rows>
BRAID_INLINE VecI gather(const Rows& rows, int offset) {
#if defined(__AVX512F__)
  __m128i quad[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    int32_t d[4];
    for (int j = 0; j < 4; ++j) std::memcpy(&d[j], rows.at(4 * i + j, offset), 4);
    quad[i] = _mm_cvtsi32_si128(d[0]);
    quad[i] = _mm_insert_epi32(quad[i], d[1], 1);
    quad[i] = _mm_insert_epi32(quad[i], d[2], 2);
    quad[i] = _mm_insert_epi32(quad[i], d[3], 3);
  }
  __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(quad[0]), quad[1], 1);
  __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(quad[2]), quad[3], 1);
  return (VecI)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#else
  VecI v;
  for (int i = 0; i < kLanes; ++i) {
    int32_t d;
    std::memcpy(&d, rows.at(i, offset), 4);
    v[i] = d;
  }
  return v;
#endif
}

// Each row's four dwords at `offset`: out[i] holds dword i for all rows.
template <class Rows>
BRAID_INLINE void gather4(const Rows& rows, int offset, VecI* out) {
#if defined(__AVX512F__)
  __m512i m[4];  // quarter l of m[j] is row 4l + j
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const auto quad = [&](int l) __attribute__((always_inline)) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.at(4 * l + j, offset)));
    };
    m[j] = _mm512_castsi128_si512(quad(0));
    m[j] = _mm512_inserti32x4(m[j], quad(1), 1);
    m[j] = _mm512_inserti32x4(m[j], quad(2), 2);
    m[j] = _mm512_inserti32x4(m[j], quad(3), 3);
  }
  const __m512i ab0 = _mm512_unpacklo_epi32(m[0], m[1]), ab1 = _mm512_unpackhi_epi32(m[0], m[1]);
  const __m512i cd0 = _mm512_unpacklo_epi32(m[2], m[3]), cd1 = _mm512_unpackhi_epi32(m[2], m[3]);
  out[0] = (VecI)_mm512_unpacklo_epi64(ab0, cd0);
  out[1] = (VecI)_mm512_unpackhi_epi64(ab0, cd0);
  out[2] = (VecI)_mm512_unpacklo_epi64(ab1, cd1);
  out[3] = (VecI)_mm512_unpackhi_epi64(ab1, cd1);
#elif defined(__AVX2__)
  __m256i m[4];  // half l of m[j] is row 4l + j
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    m[j] = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(rows.at(4 + j, offset)),
                               reinterpret_cast<const __m128i*>(rows.at(j, offset)));
  }
  const __m256i ab0 = _mm256_unpacklo_epi32(m[0], m[1]), ab1 = _mm256_unpackhi_epi32(m[0], m[1]);
  const __m256i cd0 = _mm256_unpacklo_epi32(m[2], m[3]), cd1 = _mm256_unpackhi_epi32(m[2], m[3]);
  out[0] = (VecI)_mm256_unpacklo_epi64(ab0, cd0);
  out[1] = (VecI)_mm256_unpackhi_epi64(ab0, cd0);
  out[2] = (VecI)_mm256_unpacklo_epi64(ab1, cd1);
  out[3] = (VecI)_mm256_unpackhi_epi64(ab1, cd1);
#else
  for (int i = 0; i < 4; ++i) out[i] = gather(rows, offset + 4 * i);
#endif
}

// The f16 in the low half of each dword.
BRAID_INLINE Vec low_f16(VecI v) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)v));
#elif defined(__AVX2__)
  const __m256i low = _mm256_and_si256((__m256i)v, _mm256_set1_epi32(0xffff));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
#else
  f16 raw[kLanes];
  for (int i = 0; i < kLanes; ++i) raw[i].bits = static_cast<uint16_t>(v[i]);
  return load(raw);
#endif
}
BRAID_INLINE Vec high_f16(VecI v) {
  return low_f16(shift_right(v, 16));
}
BRAID_INLINE Vec low_bf16(VecI v) {
  return reinterpret_cast<Vec>(v << 16);
}
BRAID_INLINE Vec high_bf16(VecI v) {
  return reinterpret_cast<Vec>(v & splat_i(static_cast<int32_t>(0xffff0000)));
}

// Byte j of each dword: 0x10 if bit 4 * group + j of the lane in `bits` is set, else 0.
BRAID_INLINE VecI fifth_bits(VecI bits, int group) {
#if defined(__AVX512F__) || defined(__AVX2__)
  // Byte group / 2 of each lane in all four places, then a single bit for each place.
  const VecI spread = splat_i(0x01010101 * (group / 2));
  const VecI in_lane = [] {
    VecI v;
    for (int i = 0; i < kLanes; ++i) v[i] = 0x04040404 * (i % 4);
    return v;
  }();
  const VecI select_bit = splat_i(static_cast<int32_t>(group % 2 == 0 ? 0x08040201u : 0x80402010u));
#if defined(__AVX512F__)
  const __m512i byte = _mm512_shuffle_epi8((__m512i)bits, (__m512i)(in_lane + spread));
  return (VecI)_mm512_maskz_mov_epi8(_mm512_test_epi8_mask(byte, (__m512i)select_bit),
                                     _mm512_set1_epi8(0x10));
#else
  const __m256i byte = _mm256_shuffle_epi8((__m256i)bits, (__m256i)(in_lane + spread));
  const __m256i set =
      _mm256_cmpeq_epi8(_mm256_and_si256(byte, (__m256i)select_bit), (__m256i)select_bit);
  return (VecI)_mm256_and_si256(set, _mm256_set1_epi8(0x10));
#endif
#else
  // Bit j moves to 8j: j + 7j, by one multiplication without carries.
  const VecI four = shift_right(bits, 4 * group) & splat_i(15);
  return ((four * splat_i(0x00204081)) & splat_i(0x01010101)) << 4;
#endif
}

}  // namespace braid::cpu::BRAID_ISA
