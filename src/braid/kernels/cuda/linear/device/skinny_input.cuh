#pragma once

#include "braid/kernels/cuda/linear/device/output.cuh"
#include "braid/kernels/cuda/linear/device/skinny_args.h"
#include "braid/kernels/cuda/linear/device/weight_steps.cuh"
#include "braid/kernels/cuda/ptx/mma.h"

// The input of a skinny product on the way to shared memory. Activations bypass L1: L1 may hold
// data from before an earlier launch's writes.
namespace braid::cuda {

// Elements i .. i + 3 out of n, zeros past the end.
__device__ inline void load_floats(const void* p, DType dtype, int64_t i, int64_t n, float* v) {
  const auto address = reinterpret_cast<uintptr_t>(p) + i * (dtype == DType::f32 ? 4 : 2);
  if (i + 4 > n || (address & (dtype == DType::f32 ? 15 : 7)) != 0) {
    for (int e = 0; e < 4; ++e) {
      v[e] = 0;
      if (i + e >= n) continue;
      if (dtype == DType::f32) {
        v[e] = __ldcg(static_cast<const float*>(p) + i + e);
      } else {
        const unsigned short h = __ldcg(static_cast<const unsigned short*>(p) + i + e);
        v[e] = load_float(&h, dtype, 0);
      }
    }
  } else if (dtype == DType::f32) {
    const float4 f = __ldcg(reinterpret_cast<const float4*>(address));
    v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
  } else {
    const uint2 h = __ldcg(reinterpret_cast<const uint2*>(address));
    if (dtype == DType::bf16) {
      v[0] = ptx::low_half(h.x), v[1] = ptx::high_half(h.x);
      v[2] = ptx::low_half(h.y), v[3] = ptx::high_half(h.y);
    } else {
      const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&h.x));
      const float2 b = __half22float2(*reinterpret_cast<const __half2*>(&h.y));
      v[0] = a.x, v[1] = a.y, v[2] = b.x, v[3] = b.y;
    }
  }
}

// The 16 bytes of x for thread t of a quad in step s, and sums for the groups' zeros.
template <int kGroups>
__device__ inline void store_piece(const SkinnyArgs& args, uint8_t* smem, int s, int token, int t,
                                   const float* v) {
  const uint4 piece{pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
                    pack_bf16(v[6], v[7])};
  *reinterpret_cast<uint4*>(smem + args.smem.x + ((s * args.tokens + token) * 4 + t) * 16) = piece;
  if constexpr (kGroups > 0) {
    const auto pair_sum = [](uint32_t p) { return ptx::low_half(p) + ptx::high_half(p); };
    float sum[2] = {pair_sum(piece.x) + pair_sum(piece.y), pair_sum(piece.z) + pair_sum(piece.w)};
    if (kGroups == 1) sum[0] += sum[1];
    const int lane = threadIdx.x & 31;
    const uint32_t quad = 15u << (lane & 28);
    const int pitch = (args.tokens + 1) / 2 * 2;
    auto* sums = reinterpret_cast<float*>(smem + args.smem.sums) + s * kGroups * pitch + token;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      sum[g] += __shfl_xor_sync(quad, sum[g], 1);
      sum[g] += __shfl_xor_sync(quad, sum[g], 2);
      if (t == 0) sums[g * pitch] = sum[g];
    }
  }
}

// x[:, k_begin : k_begin + k_size] as bf16, including tokens that are not live: each token has a
// separate column of the product. With a norm x is (a + b) * w; `squares` gives the divisor.
template <int kGroups, bool kSplit>
__device__ inline void stage_input(const SkinnyArgs& args, int k_begin, int k_size, int live,
                                   uint8_t* smem) {
  constexpr int kThreads = 32 * kSkinnyWarps;
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const int k = args.p.k;
  const auto at = [](int piece, int half) {  // first element of half a piece
    const int s = piece >> 2, t = piece & 3;
    return 32 * s + (kSplit ? 16 * half + 4 * t : 8 * t + 4 * half);
  };
  if (!args.p.normed) {
    const int pieces = (k_size + 31) / 32 * 4;
    const int elem_bytes = args.p.x_dtype == DType::f32 ? 4 : 2;
#pragma unroll 4
    for (int i = threadIdx.x; i < pieces * args.tokens; i += kThreads) {
      const int token = i / pieces, piece = i % pieces;
      const auto* x = static_cast<const uint8_t*>(args.p.x) +
                      (args.row_begin + token) * args.p.x_stride * elem_bytes;
      float v[8];
      load_floats(x, args.p.x_dtype, k_begin + at(piece, 0), k, v);
      load_floats(x, args.p.x_dtype, k_begin + at(piece, 1), k, v + 4);
      store_piece<kGroups>(args, smem, piece >> 2, token, piece & 3, v);
    }
    return;
  }
  const SkinnyNorm& norm = args.p.norm;
  auto* squares = reinterpret_cast<float*>(smem + args.smem.squares);
  const int pieces = (k + 31) / 32 * 4;
  for (int token = 0; token < args.tokens; ++token) {
    const int64_t row = args.row_begin + token;
    float sum = 0;
#pragma unroll 2
    for (int piece = threadIdx.x; piece < pieces; piece += kThreads) {
      float v[8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* x = v + 4 * half;
        const int i = at(piece, half);
        load_floats(norm.a + row * norm.a_stride, DType::f32, i, k, x);
        if (norm.b != nullptr) {
          float b[4];
          load_floats(static_cast<const __nv_bfloat16*>(norm.b) + row * norm.b_stride, DType::bf16,
                      i, k, b);
          for (int e = 0; e < 4; ++e) x[e] += b[e];
        }
        if (norm.sum != nullptr && blockIdx.x == 0 && token < live) {
          for (int e = 0; e < 4; ++e) {
            if (i + e < k) norm.sum[row * norm.sum_stride + i + e] = x[e];
          }
        }
        float w[4];
        load_floats(norm.w, norm.w_dtype, i, k, w);
        for (int e = 0; e < 4; ++e) {
          sum += x[e] * x[e];
          x[e] *= w[e];
        }
      }
      const int s = (piece >> 2) - k_begin / 32;
      if (s >= 0 && 32 * s < k_size) {
        store_piece<kGroups>(args, smem, s, token, piece & 3, v);
      }
    }
    for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, delta);
    if (lane == 0) squares[warp * kSkinnyMaxTokens + token] = sum;
  }
}

}  // namespace braid::cuda
