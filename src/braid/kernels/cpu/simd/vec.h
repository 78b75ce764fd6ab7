#pragma once

// Vec: kLanes f32 values in a register, for sources compiled once per Isa (see
// kernels/cpu/CMakeLists.txt). For *_simd.cc only. All functions are forced inline, so that no copy
// for a machine is linked into another machine's code.

#include <cstdint>
#include <cstring>

#include "braid/tensor/half.h"

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#define BRAID_INLINE inline __attribute__((always_inline))

namespace braid::cpu::BRAID_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kVectorRegisters = 32;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kVectorRegisters = 16;
#else
constexpr int kLanes = 4;
constexpr int kVectorRegisters = 16;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t VecI __attribute__((vector_size(kLanes * 4)));
typedef uint32_t VecU __attribute__((vector_size(kLanes * 4)));

BRAID_INLINE Vec splat(float x) {
  return x - Vec{};
}
BRAID_INLINE Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
BRAID_INLINE void store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof(v));
}

// a * b + c, rounded once where the machine has FMA.
BRAID_INLINE Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

BRAID_INLINE Vec select(VecI mask, Vec a, Vec b) {
  return mask ? a : b;
}
// b where either is NaN.
BRAID_INLINE Vec max(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
BRAID_INLINE Vec min(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

// The order of the additions is fixed: a tree over halves.
BRAID_INLINE float sum(Vec v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(v);
#else
  float lane[kLanes];
  store(lane, v);
  for (int n = kLanes / 2; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) lane[i] += lane[i + n];
  }
  return lane[0];
#endif
}
BRAID_INLINE float max_lane(Vec v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(v);
#else
  float lane[kLanes];
  store(lane, v);
  for (int n = kLanes / 2; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) lane[i] = lane[i] > lane[i + n] ? lane[i] : lane[i + n];
  }
  return lane[0];
#endif
}

// The first n (0..kLanes) elements; the others read as zero and are not touched in memory.
BRAID_INLINE Vec load_n(const float* p, int n) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
#else
  float lane[kLanes] = {};
  std::memcpy(lane, p, n * sizeof(float));
  return load(lane);
#endif
}
BRAID_INLINE void store_n(float* p, Vec v, int n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
#else
  float lane[kLanes];
  store(lane, v);
  std::memcpy(p, lane, n * sizeof(float));
#endif
}

BRAID_INLINE Vec load(const f16* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  // By integers, exact for every f16: move exponent and mantissa up, then scale by 2^112, which
  // makes normals of subnormals too; infinities and NaNs get the largest exponent back.
  typedef uint16_t Raw __attribute__((vector_size(kLanes * 2)));
  typedef uint32_t VecU __attribute__((vector_size(kLanes * 4)));
  Raw raw;
  std::memcpy(&raw, p, sizeof(raw));
  const VecU u = __builtin_convertvector(raw, VecU);
  const VecU magnitude = (u & 0x7fff) << 13;
  const Vec scaled = reinterpret_cast<Vec>(magnitude) * 0x1p112f;
  VecU bits = reinterpret_cast<VecU>(scaled);
  bits |= reinterpret_cast<VecU>(magnitude >= (0x7c00u << 13)) & 0x7f800000u;
  bits |= (u & 0x8000) << 16;
  return reinterpret_cast<Vec>(bits);
#endif
}
BRAID_INLINE Vec load(const bf16* p) {
#if defined(__AVX512F__)
  const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
#elif defined(__AVX2__)
  const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
#else
  typedef uint16_t Raw __attribute__((vector_size(kLanes * 2)));
  typedef uint32_t VecU __attribute__((vector_size(kLanes * 4)));
  Raw raw;
  std::memcpy(&raw, p, sizeof(raw));
  return reinterpret_cast<Vec>(__builtin_convertvector(raw, VecU) << 16);
#endif
}

template <class T>
BRAID_INLINE Vec load_n(const T* p, int n) {
#if defined(__AVX512F__)
  const __m256i raw = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1), p);
  T lane[kLanes];
  std::memcpy(lane, &raw, sizeof(raw));
  return load(lane);
#else
  T lane[kLanes] = {};
  std::memcpy(lane, p, n * sizeof(T));
  return load(lane);
#endif
}

// Round to nearest even, as to_f16 and to_bf16 in tensor/half.h.
BRAID_INLINE void store(f16* p, Vec v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__AVX2__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < kLanes; ++i) p[i] = to_f16(v[i]);
#endif
}
BRAID_INLINE void store(bf16* p, Vec v) {
  typedef uint32_t VecU __attribute__((vector_size(kLanes * 4)));
  typedef uint16_t Raw __attribute__((vector_size(kLanes * 2)));
  const VecU u = reinterpret_cast<VecU>(v);
  const VecU rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
  const VecU nan = (u >> 16) | 0x40;
  const VecU is_nan = reinterpret_cast<VecU>((u & 0x7fffffffu) > 0x7f800000u);
  const Raw raw = __builtin_convertvector((nan & is_nan) | (rounded & ~is_nan), Raw);
  std::memcpy(p, &raw, sizeof(raw));
}
template <class T>
BRAID_INLINE void store_n(T* p, Vec v, int n) {
  T lane[kLanes];
  store(lane, v);
  std::memcpy(p, lane, n * sizeof(T));
}

// 2^fraction * 2^integer, `shifted` being integer + kRoundShift; the result must be a normal
// number. Minimax polynomial of degree 6 on [-0.5, 0.5].
BRAID_INLINE Vec exp2_fraction(Vec fraction, Vec shifted) {
  Vec p = splat(0.00015469734f);
  p = fma(p, fraction, splat(0.0013390867f));
  p = fma(p, fraction, splat(0.009618031f));
  p = fma(p, fraction, splat(0.05550357f));
  p = fma(p, fraction, splat(0.24022651f));
  p = fma(p, fraction, splat(0.6931472f));
  p = fma(p, fraction, splat(1.0f));
  // The low bits of `shifted` hold the integer part: into the exponent. Unsigned, since lanes that
  // the caller drops (0 below the range) may overflow.
  return reinterpret_cast<Vec>(reinterpret_cast<VecU>(p) + (reinterpret_cast<VecU>(shifted) << 23));
}
constexpr float kRoundShift = 12582912.0f;  // 1.5 * 2^23: x + this - this rounds x to an integer

// 2^x for -126 <= x < 127.5, 0 below (also for -infinity), within 0.87 ulp (1.2 without FMA, both
// measured over all exponents); more is the caller's mistake. NaN stays NaN.
BRAID_INLINE Vec exp2(Vec x) {
  const Vec shifted = x + splat(kRoundShift);
  const Vec fraction = x - (shifted - splat(kRoundShift));
  return select(x < splat(-126.0f), Vec{}, exp2_fraction(fraction, shifted));
}

// e^x for -87 <= x <= 88, 0 below, the value at 88 above; within 1.2 ulp (1.4 without FMA).
// NaN stays NaN.
BRAID_INLINE Vec exp(Vec x) {
  x = min(splat(88.0f), x);
  const Vec shifted = fma(x, splat(1.44269504f), splat(kRoundShift));
  const Vec n = shifted - splat(kRoundShift);
  Vec r = fma(n, splat(-0.693359375f), x);  // ln 2 in two parts, the first exact when times n
  r = fma(n, splat(2.12194440e-4f), r);
  return select(x < splat(-87.0f), Vec{}, exp2_fraction(r * splat(1.44269504f), shifted));
}

// Absolute error below 2e-7.
BRAID_INLINE Vec tanh(Vec x) {
  return splat(1.0f) - splat(2.0f) / (exp(x + x) + splat(1.0f));
}

// Lanes of a and b by turns: both lower halves, or both upper halves.
#if defined(__AVX512F__)
BRAID_INLINE Vec interleave_low(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
BRAID_INLINE Vec interleave_high(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}
#elif defined(__AVX2__)
BRAID_INLINE Vec interleave_low(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
BRAID_INLINE Vec interleave_high(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#else
BRAID_INLINE Vec interleave_low(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
BRAID_INLINE Vec interleave_high(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
#endif

// Rows in a kLanes x kLanes matrix become its columns.
BRAID_INLINE void transpose(Vec (&m)[kLanes]) {
#pragma GCC unroll 4
  for (int stage = 1; stage < kLanes; stage *= 2) {  // log2(kLanes) perfect shuffles
    Vec t[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      t[2 * i] = interleave_low(m[i], m[i + kLanes / 2]);
      t[2 * i + 1] = interleave_high(m[i], m[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) m[i] = t[i];
  }
}

}  // namespace braid::cpu::BRAID_ISA
