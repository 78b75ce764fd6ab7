#include <algorithm>

#include "braid/kernels/cuda/linear/device/dequantize_launch.h"
#include "braid/kernels/cuda/linear/device/weight_steps.cuh"

namespace braid::cuda {
namespace {

// A row's elements k .. k + 7, k a multiple of 8; products and sums round as in dequantize_row.
template <DType kType>
struct Eight;

template <>
struct Eight<DType::f32> {
  __device__ static void load(const uint8_t* row, int64_t k, int count, float* v) {
    for (int e = 0; e < 8; ++e) v[e] = e < count ? reinterpret_cast<const float*>(row)[k + e] : 0;
  }
};
template <>
struct Eight<DType::f16> {
  __device__ static void load(const uint8_t* row, int64_t k, int count, float* v) {
    for (int e = 0; e < 8; ++e) v[e] = e < count ? f16_at(row + 2 * (k + e)) : 0;
  }
};
template <>
struct Eight<DType::bf16> {
  __device__ static void load(const uint8_t* row, int64_t k, int count, float* v) {
    const auto* bits = reinterpret_cast<const uint16_t*>(row);
    for (int e = 0; e < 8; ++e) {
      v[e] = e < count ? __uint_as_float(static_cast<uint32_t>(bits[k + e]) << 16) : 0;
    }
  }
};

__device__ inline int byte_of(const uint32_t (&words)[2], int e) {
  return words[e >> 2] >> 8 * (e & 3) & 255;
}

template <int kBytes, int kOffset, bool kMin, bool kFifth>
struct NibbleEight {
  __device__ static void load(const uint8_t* row, int64_t k, int, float* v) {
    const uint8_t* block = row + k / 32 * kBytes;
    const int i = k % 32;
    constexpr int kHigh = kMin ? 4 : 2;
    const uint8_t* qs = block + kHigh + (kFifth ? 4 : 0) + (i & 15);
    const uint32_t words[2] = {load_u16x2(qs), load_u16x2(qs + 4)};
    const uint32_t fifth = kFifth ? load_u16x2(block + kHigh) >> i : 0;
    const float d = f16_at(block);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int low = i < 16 ? byte_of(words, e) & 15 : byte_of(words, e) >> 4;
      const int q = (low | static_cast<int>(fifth >> e & 1) << 4) - kOffset;
      v[e] = __fmul_rn(d, static_cast<float>(q));
      if constexpr (kMin) v[e] = __fadd_rn(v[e], f16_at(block + 2));
    }
  }
};
template <>
struct Eight<DType::q4_0> : NibbleEight<sizeof(BlockQ4_0), 8, false, false> {};
template <>
struct Eight<DType::q4_1> : NibbleEight<sizeof(BlockQ4_1), 0, true, false> {};
template <>
struct Eight<DType::q5_0> : NibbleEight<sizeof(BlockQ5_0), 16, false, true> {};
template <>
struct Eight<DType::q5_1> : NibbleEight<sizeof(BlockQ5_1), 0, true, true> {};

template <>
struct Eight<DType::q8_0> {
  __device__ static void load(const uint8_t* row, int64_t k, int, float* v) {
    const uint8_t* block = row + k / 32 * sizeof(BlockQ8_0);
    const uint8_t* qs = block + 2 + k % 32;
    const uint32_t words[2] = {load_u16x2(qs), load_u16x2(qs + 4)};
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      v[e] = __fmul_rn(f16_at(block), static_cast<float>(static_cast<int8_t>(byte_of(words, e))));
    }
  }
};

__device__ inline void load_scale_min(const uint8_t* scales, int g, float* scale, float* min) {
  const uint32_t b0 = scales[g & 3], b1 = scales[(g & 3) + 4], b2 = scales[(g & 3) + 8];
  *scale = static_cast<float>(g < 4 ? b0 & 63 : (b2 & 15) | b0 >> 6 << 4);
  *min = static_cast<float>(g < 4 ? b1 & 63 : b2 >> 4 | b1 >> 6 << 4);
}

template <class Block, bool kFifth>
struct SuperEight {
  __device__ static void load(const uint8_t* row, int64_t k, int, float* v) {
    const auto& b = reinterpret_cast<const Block*>(row)[k / 256];
    const int i = k % 256, g = i / 32;
    const uint8_t* qs = b.qs + 32 * (g >> 1) + i % 32;
    const uint32_t words[2] = {load_u16x2(qs), load_u16x2(qs + 4)};
    uint32_t fifth[2] = {0, 0};
    if constexpr (kFifth) {
      fifth[0] = load_u16x2(b.qh + i % 32) >> g;
      fifth[1] = load_u16x2(b.qh + i % 32 + 4) >> g;
    }
    float scale, min;
    load_scale_min(b.scales, g, &scale, &min);
    const float step = __fmul_rn(f16_at(&b.d), scale), base = __fmul_rn(f16_at(&b.dmin), min);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int low = byte_of(words, e) >> 4 * (g & 1) & 15;
      const int q = low | (byte_of(fifth, e) & 1) << 4;
      v[e] = __fsub_rn(__fmul_rn(step, static_cast<float>(q)), base);
    }
  }
};
template <>
struct Eight<DType::q4_k> : SuperEight<BlockQ4_K, false> {};
template <>
struct Eight<DType::q5_k> : SuperEight<BlockQ5_K, true> {};

template <>
struct Eight<DType::q6_k> {
  __device__ static void load(const uint8_t* row, int64_t k, int, float* v) {
    const auto& b = reinterpret_cast<const BlockQ6_K*>(row)[k / 256];
    const int i = k % 256, half = i / 128, quarter = i % 128 / 32;
    const uint8_t* ql = b.ql + 64 * half + 32 * (quarter & 1) + i % 32;
    const uint8_t* qh = b.qh + 32 * half + i % 32;
    const uint32_t low[2] = {load_u16x2(ql), load_u16x2(ql + 4)};
    const uint32_t high[2] = {load_u16x2(qh), load_u16x2(qh + 4)};
    const float step = __fmul_rn(f16_at(&b.d), static_cast<float>(b.scales[i / 16]));
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int q =
          (byte_of(low, e) >> 4 * (quarter >> 1) & 15) | (byte_of(high, e) >> 2 * quarter & 3) << 4;
      v[e] = __fmul_rn(step, static_cast<float>(q - 32));
    }
  }
};

constexpr int kThreads = 256;
constexpr int kUnroll = 4;  // pieces of a thread, all loaded before the first store

template <DType kType>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const DequantizeParams p, uint32_t pieces_per_row, uint32_t pieces) {
  const uint32_t first = blockIdx.x * kThreads * kUnroll + threadIdx.x;
  ptx::grid_launch_dependents();
  float v[kUnroll][8];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const uint32_t i = first + u * kThreads;
    if (i >= pieces) continue;
    const int64_t n = i / pieces_per_row, k = int64_t{8} * (i % pieces_per_row);
    Eight<kType>::load(static_cast<const uint8_t*>(p.w) + n * p.row_bytes, k,
                       static_cast<int>(min(int64_t{8}, p.k - k)), v[u]);
  }
  ptx::grid_dependency_wait();
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const uint32_t i = first + u * kThreads;
    if (i >= pieces) continue;
    const int64_t n = i / pieces_per_row, k = int64_t{8} * (i % pieces_per_row);
    auto* out = static_cast<__nv_bfloat16*>(p.out) + n * p.out_stride + k;
    if (k + 8 <= p.k && (reinterpret_cast<uintptr_t>(out) & 15) == 0) {
      *reinterpret_cast<uint4*>(out) = {pack_bf16(v[u][0], v[u][1]), pack_bf16(v[u][2], v[u][3]),
                                        pack_bf16(v[u][4], v[u][5]), pack_bf16(v[u][6], v[u][7])};
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (k + e < p.k) out[e] = __float2bfloat16_rn(v[u][e]);
      }
    }
  }
}

}  // namespace

template <DType kType>
void launch_dequantize(const DequantizeParams& params, const LaunchContext& context) {
  const int64_t per_row = (params.k + 7) / 8;
  constexpr int64_t kMost = int64_t{1} << 30;
  DequantizeParams p = params;
  for (int64_t done = 0; done < params.n; done += p.n) {
    p.n = std::min(params.n - done, kMost / per_row);
    p.w = static_cast<const uint8_t*>(params.w) + done * params.row_bytes;
    p.out = static_cast<uint16_t*>(params.out) + done * params.out_stride;
    const auto pieces = static_cast<uint32_t>(p.n * per_row);
    launch_kernel(context, dequantize_kernel<kType>,
                  dim3((pieces + kThreads * kUnroll - 1) / (kThreads * kUnroll)), dim3(kThreads), 0,
                  p, static_cast<uint32_t>(per_row), pieces);
  }
}

template void launch_dequantize<DType::f32>(const DequantizeParams&, const LaunchContext&);
template void launch_dequantize<DType::f16>(const DequantizeParams&, const LaunchContext&);
template void launch_dequantize<DType::bf16>(const DequantizeParams&, const LaunchContext&);
template void launch_dequantize<DType::q4_0>(const DequantizeParams&, const LaunchContext&);
template void launch_dequantize<DType::q4_1>(const DequantizeParams&, const LaunchContext&);
template void launch_dequantize<DType::q5_0>(const DequantizeParams&, const LaunchContext&);
template void launch_dequantize<DType::q5_1>(const DequantizeParams&, const LaunchContext&);
template void launch_dequantize<DType::q8_0>(const DequantizeParams&, const LaunchContext&);
template void launch_dequantize<DType::q4_k>(const DequantizeParams&, const LaunchContext&);
template void launch_dequantize<DType::q5_k>(const DequantizeParams&, const LaunchContext&);
template void launch_dequantize<DType::q6_k>(const DequantizeParams&, const LaunchContext&);

}  // namespace braid::cuda
