#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "braid/tensor/dtype.h"

// Vectors of f32, f16 or bf16 in memory as f32 in registers. A vector with N elements takes 16-byte
// accesses, or a smaller access of its own size; its address is a multiple of the access. Numbers
// beyond the range of f16 are stored as the largest ones of their sign, NaN as NaN.
namespace braid::cuda {

// Calls `f` with a value of the dtype's type: f32, f16 or bf16.
template <class F>
void with_type(DType dtype, F&& f) {
  if (dtype == DType::f32) return f(float());
  if (dtype == DType::f16) return f(__half());
  f(__nv_bfloat16());
}

template <class F>
void with_types(DType a, DType b, F&& f) {
  with_type(a, [&](auto x) { with_type(b, [&](auto y) { f(x, y); }); });
}

template <int kBytes>
using Word = std::conditional_t<
    kBytes >= 16, uint4,
    std::conditional_t<kBytes == 8, uint2, std::conditional_t<kBytes == 4, uint32_t, uint16_t>>>;

template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Packed {
  using Access = Word<static_cast<int>(N * sizeof(T))>;
  static constexpr int kAccesses = N * sizeof(T) / sizeof(Access);
  Access word[kAccesses];
};

template <class T>
__device__ inline float widen(T x) {
  if constexpr (std::is_same_v<T, float>) return x;
  if constexpr (std::is_same_v<T, __half>) return __half2float(x);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return __bfloat162float(x);
}

__device__ inline __half2 clip(__half2 x) {
  constexpr float kMost = 65504;
  const __half2 most = __float2half2_rn(kMost);
  return __hmax2_nan(__hmin2_nan(x, most), __hneg2(most));
}

template <class T>
__device__ inline T narrow(float x) {
  if constexpr (std::is_same_v<T, float>) return x;
  if constexpr (std::is_same_v<T, __half>) return __low2half(clip(__float2half2_rn(x)));
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(x);
}

template <class T, int N>
__device__ inline Packed<T, N> load_packed(const T* p) {
  Packed<T, N> out;
  using Access = typename Packed<T, N>::Access;
#pragma unroll
  for (int i = 0; i < Packed<T, N>::kAccesses; ++i) {
    out.word[i] = reinterpret_cast<const Access*>(p)[i];
  }
  return out;
}

// Through the read-only path: for constants alone.
template <class T, int N>
__device__ inline Packed<T, N> load_constant(const T* p) {
  Packed<T, N> out;
  using Access = typename Packed<T, N>::Access;
#pragma unroll
  for (int i = 0; i < Packed<T, N>::kAccesses; ++i) {
    out.word[i] = __ldg(reinterpret_cast<const Access*>(p) + i);
  }
  return out;
}

// Two 16-bit floats at a time: one instruction to widen bf16, one to round two of either.
template <class T>
__device__ inline float2 widen_pair(uint32_t x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(x));
  } else {
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
  }
}

template <class T>
__device__ inline uint32_t narrow_pair(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 out = clip(__floats2half2_rn(low, high));
    return reinterpret_cast<const uint32_t&>(out);
  } else {
    const __nv_bfloat162 out = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(out);
  }
}

template <class T, int N>
__device__ inline void widen(const Packed<T, N>& in, float (&out)[N]) {
  if constexpr (sizeof(T) == 2 && N > 1) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float2 pair = widen_pair<T>(reinterpret_cast<const uint32_t*>(in.word)[i]);
      out[2 * i] = pair.x;
      out[2 * i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = widen(reinterpret_cast<const T*>(in.word)[i]);
  }
}

template <class T, int N>
__device__ inline void store(T* p, const float (&x)[N]) {
  Packed<T, N> out;
  if constexpr (sizeof(T) == 2 && N > 1) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      reinterpret_cast<uint32_t*>(out.word)[i] = narrow_pair<T>(x[2 * i], x[2 * i + 1]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) reinterpret_cast<T*>(out.word)[i] = narrow<T>(x[i]);
  }
  using Access = typename Packed<T, N>::Access;
#pragma unroll
  for (int i = 0; i < Packed<T, N>::kAccesses; ++i) {
    reinterpret_cast<Access*>(p)[i] = out.word[i];
  }
}

// N elements at index i in a constant of any float dtype.
template <int N>
__device__ inline void load_constant(const void* data, DType dtype, int64_t i, float (&out)[N]) {
  if (dtype == DType::f32) {
    widen(load_constant<float, N>(static_cast<const float*>(data) + i), out);
  } else if (dtype == DType::bf16) {
    widen(load_constant<__nv_bfloat16, N>(static_cast<const __nv_bfloat16*>(data) + i), out);
  } else {
    widen(load_constant<__half, N>(static_cast<const __half*>(data) + i), out);
  }
}

}  // namespace braid::cuda
