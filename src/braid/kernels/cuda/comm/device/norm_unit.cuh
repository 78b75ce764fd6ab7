#pragma once

#include "braid/kernels/cuda/comm/device/line.cuh"

// A row that is summed over ranks and normed, in a CTA's registers: units of elements, weights, and
// the sum of squares.
namespace braid::cuda {

constexpr int kElems = 8;  // of a unit, 16 or 32 bytes

// 8 elements of T: `kWords` words, a line unit or two.
template <class T>
struct NormUnit {
  static constexpr int kParts = kElems * sizeof(T) / 16;
  LineUnit<8> parts[kParts];

  __device__ void load(const T* p) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      parts[i].load(reinterpret_cast<const std::byte*>(p) + 16 * i, 16, true);
    }
  }
  __device__ void load_streaming(const T* p) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const uint4 v = ptx::load_streaming(reinterpret_cast<const uint4*>(p) + i);
      parts[i].words[0] = v.x;
      parts[i].words[1] = v.y;
      parts[i].words[2] = v.z;
      parts[i].words[3] = v.w;
    }
  }
  __device__ void send(uint4* slot, int u, int units, uint32_t epoch) const {
#pragma unroll
    for (int i = 0; i < kParts; ++i) parts[i].send(slot, i * 2 * units + u, units, epoch);
  }
  __device__ bool receive(const CommView& view, int from, const uint4* slot, int u, int units,
                          uint32_t epoch) {
    bool ok = true;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      ok = ok && parts[i].receive(view, from, slot, i * 2 * units + u, units, epoch);
    }
    return ok;
  }
  __device__ void add_to(float* x, bool first) const {
    constexpr int kPartElems = kElems / kParts;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      WordSum<T, 4> v;
      v.set(parts[i].words);
#pragma unroll
      for (int j = 0; j < kPartElems; ++j) {
        float& sum = x[i * kPartElems + j];
        sum = first ? v.x[j] : sum + v.x[j];
      }
    }
  }
};

template <class T>
__device__ void store8(T* p, const float* x) {
#pragma unroll
  for (int v = 0; v < static_cast<int>(kElems * sizeof(T) / 16); ++v) {
    uint32_t words[4];
    constexpr int kWordElems = WordOf<T>::kElems;
#pragma unroll
    for (int w = 0; w < 4; ++w) words[w] = WordOf<T>::pack(x + (4 * v + w) * kWordElems);
    reinterpret_cast<uint4*>(p)[v] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

template <class T>
__device__ void load8(const T* p, float* x) {
#pragma unroll
  for (int v = 0; v < static_cast<int>(kElems * sizeof(T) / 16); ++v) {
    const uint4 raw = reinterpret_cast<const uint4*>(p)[v];
    WordSum<T, 4> values;
    values.set(&raw.x);
#pragma unroll
    for (int j = 0; j < 16 / static_cast<int>(sizeof(T)); ++j) {
      x[v * (16 / sizeof(T)) + j] = values.x[j];
    }
  }
}

// The sum of `x` over the threads of the CTA, in a fixed order, for all threads. `parity`
// alternates from call to call.
__device__ inline float cta_sum(float x, int parity) {
  __shared__ float warps[2][32];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffff, x, d);
  if (threadIdx.x % 32 == 0) warps[parity][threadIdx.x / 32] = x;
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  x = lane < blockDim.x / 32 ? warps[parity][lane] : 0;
#pragma unroll
  for (int d = kMaxCommThreads / 64; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffff, x, d);
  return __shfl_sync(0xffffffff, x, 0);
}

// Weights for a thread's units, in a row with `units`.
template <int kUnits>
__device__ void load_weights(const void* w, bool bf16, int units, float (&out)[kUnits][kElems]) {
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int u = threadIdx.x + i * blockDim.x;
    if (u >= units) continue;
    if (bf16) {
      load8(static_cast<const __nv_bfloat16*>(w) + u * kElems, out[i]);
    } else {
      load8(static_cast<const float*>(w) + u * kElems, out[i]);
    }
  }
}

// The same for a thread's single unit, in memory order: nothing waits for the load before use.
struct RawWeights {
  uint4 words[2];

  __device__ void load(const void* w, bool bf16, int u) {
    if (bf16) {
      words[0] = static_cast<const uint4*>(w)[u];
    } else {
      words[0] = static_cast<const uint4*>(w)[2 * u];
      words[1] = static_cast<const uint4*>(w)[2 * u + 1];
    }
  }
  __device__ void get(bool bf16, float (&out)[kElems]) const {
    if (bf16) {
      WordSum<__nv_bfloat16, 4> values;
      values.set(&words[0].x);
#pragma unroll
      for (int j = 0; j < kElems; ++j) out[j] = values.x[j];
    } else {
#pragma unroll
      for (int j = 0; j < kElems; ++j) {
        out[j] = __uint_as_float((&words[j / 4].x)[j % 4]);
      }
    }
  }
};

}  // namespace braid::cuda
