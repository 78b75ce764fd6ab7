#pragma once

#include <cuda_bf16.h>

#include <cmath>

#include "braid/kernels/cuda/ptx/gpu.h"

// Four neighbouring elements of an exchange: in transit, during addition, and as words of device
// memory with a tag.
namespace braid::cuda {

template <class T>
struct QuadType;
template <>
struct QuadType<float> {
  using type = float4;
};
template <>
struct QuadType<__nv_bfloat16> {
  using type = uint2;
};
template <class T>
using QuadOf = typename QuadType<T>::type;

__device__ inline float4 as_floats(float4 x) {
  return x;
}
__device__ inline float4 as_floats(uint2 x) {
  return make_float4(__uint_as_float(x.x << 16), __uint_as_float(x.x & 0xffff0000u),
                     __uint_as_float(x.y << 16), __uint_as_float(x.y & 0xffff0000u));
}

__device__ inline uint4 words_of(float4 x) {
  return make_uint4(__float_as_uint(x.x), __float_as_uint(x.y), __float_as_uint(x.z),
                    __float_as_uint(x.w));
}
__device__ inline uint4 words_of(uint4 x) {
  return x;
}
__device__ inline uint2 words_of(uint2 x) {
  return x;
}

struct ExchangeSum {
  __device__ static float4 of(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  }
};

// The maximum of a number and a NaN is the number.
struct ExchangeMax {
  __device__ static float4 of(float4 a, float4 b) {
    return make_float4(fmaxf(a.x, b.x), fmaxf(a.y, b.y), fmaxf(a.z, b.z), fmaxf(a.w, b.w));
  }
};

// Writes the i-th words of a CTA: {4 bytes, tag, 4 bytes, tag}; each half is seen as a whole.
__device__ inline void post_words(uint4* mail, int i, uint2 x, uint32_t tag) {
  ptx::store_relaxed_gpu(mail + i, make_uint4(x.x, tag, x.y, tag));
}
__device__ inline void post_words(uint4* mail, int i, uint4 x, uint32_t tag) {
  post_words(mail, 2 * i, make_uint2(x.x, x.y), tag);
  post_words(mail, 2 * i + 1, make_uint2(x.z, x.w), tag);
}
__device__ inline void post_words(uint4* mail, int i, float4 x, uint32_t tag) {
  post_words(mail, i, words_of(x), tag);
}

// kCount neighbouring words, once all have the tag. After some seconds, as a try takes half a
// microsecond at least, the launch ends with an error of the device.
template <int kCount>
__device__ inline void look_for_words(const uint4* mail, uint32_t tag, uint4 (&v)[kCount]) {
  uint32_t tries = 0;
  bool all;
  do {
    all = true;
#pragma unroll
    for (int j = 0; j < kCount; ++j) v[j] = ptx::load_relaxed_gpu(mail + j);
#pragma unroll
    for (int j = 0; j < kCount; ++j) all = all && v[j].y == tag && v[j].w == tag;
    if (++tries > 1u << 23) __trap();
  } while (!all);
}

template <class Q>
__device__ inline Q fetch_words(const uint4* mail, int i, uint32_t tag);
template <>
__device__ inline uint2 fetch_words<uint2>(const uint4* mail, int i, uint32_t tag) {
  uint4 v[1];
  look_for_words(mail + i, tag, v);
  return make_uint2(v[0].x, v[0].z);
}
template <>
__device__ inline uint4 fetch_words<uint4>(const uint4* mail, int i, uint32_t tag) {
  uint4 v[2];
  look_for_words(mail + 2 * i, tag, v);
  return make_uint4(v[0].x, v[0].z, v[1].x, v[1].z);
}
template <>
__device__ inline float4 fetch_words<float4>(const uint4* mail, int i, uint32_t tag) {
  const uint4 x = fetch_words<uint4>(mail, i, tag);
  return make_float4(__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z),
                     __uint_as_float(x.w));
}

}  // namespace braid::cuda
