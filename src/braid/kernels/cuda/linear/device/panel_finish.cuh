#pragma once

#include "braid/kernels/cuda/linear/device/output.cuh"
#include "braid/kernels/cuda/linear/device/panel_fetch.cuh"
#include "braid/kernels/cuda/ptx/cluster.h"
#include "braid/kernels/cuda/ptx/mma.h"

// The end of a panel's sums: warps' and CTAs' sums merge, then bias, gate, residual.
namespace braid::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Stores four neighbouring columns of y.
__device__ inline void panel_store(const SkinnyPart& part, int64_t token, int column,
                                   const float (&y)[4]) {
  const int64_t at = token * part.y_stride + column;
  if (part.y_dtype == DType::f32) {
    float* to = static_cast<float*>(part.y) + at;
    if (column + 4 <= part.n && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
      *reinterpret_cast<float4*>(to) = {y[0], y[1], y[2], y[3]};
      return;
    }
  } else {
    __nv_bfloat16* to = static_cast<__nv_bfloat16*>(part.y) + at;
    if (column + 4 <= part.n && reinterpret_cast<uintptr_t>(to) % 8 == 0) {
      *reinterpret_cast<uint2*>(to) = {ptx::pack<__nv_bfloat16>(y[0], y[1]),
                                       ptx::pack<__nv_bfloat16>(y[2], y[3])};
      return;
    }
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (column + e < part.n) store_y(part, token, column + e, y[e]);
  }
}

// y of a group with all sums in a single warp, from the warp's registers. All values are computed
// before any is stored: outputs in a chain, one after the other, would take microseconds.
template <int kTiles>
__device__ inline void panel_finish_group(const PanelArgs& a, const PanelWork& work, int group,
                                          const float (&acc)[kTiles][4], int live) {
  const SkinnyParams& p = a.p;
  const SkinnyPart& part = p.parts[work.part];
  const int lane = static_cast<int>(threadIdx.x) & 31, g = lane >> 2;
  const int token = 2 * (lane & 3);  // and the next token, in each tile
  const int64_t stride = part.y_stride;
  const bool wide = part.y_dtype == DType::f32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (p.gated && half > 0) return;
    const int column = (work.begin + group) * (p.gated ? 8 : 16) + 8 * half + g;
    if (column >= part.n) return;
    float y[kTiles][2];
    const float bias = load_bias(part, column);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      y[j][0] = acc[j][2 * half] + bias;
      y[j][1] = acc[j][2 * half + 1] + bias;
    }
    if (p.gated) {
      const float up = load_bias(p.parts[1], column);
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        float& to = y[i / 2][i % 2];
        to = activate(a.gelu, to) * (acc[i / 2][2 + i % 2] + up);
      }
    }
    // f(y, token, counted from this lane's first)
    const auto each = [&](auto&& f) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        const int on = 8 * (i / 2) + i % 2;
        if (token + on < live) f(y[i / 2][i % 2], on);
      }
    };
    if (p.residual != nullptr) {
      const float* from = p.residual + token * p.residual_stride + column;
      each([&](float& to, int on) { to += __ldcg(from + on * p.residual_stride); });
    }
    const int64_t at = token * stride + column;
    if (wide) {
      float* to = static_cast<float*>(part.y) + at;
      each([&](float x, int on) { to[on * stride] = x; });
    } else {
      __nv_bfloat16* to = static_cast<__nv_bfloat16*>(part.y) + at;
      each([&](float x, int on) { to[on * stride] = __float2bfloat16_rn(x); });
    }
  }
}

// Sums of four neighbouring rows over all ways in the cluster's CTAs, in CTA order.
__device__ inline void panel_add_parts(const float* sums, int split, int ways, int way_stride,
                                       float (&y)[4]) {
  y[0] = y[1] = y[2] = y[3] = 0;
  const auto add = [&](const float4& part) {
    y[0] += part.x, y[1] += part.y, y[2] += part.z, y[3] += part.w;
  };
  for (int way = 0; way < ways; ++way, sums += way_stride) {
    if (split == 1) {
      add(*reinterpret_cast<const float4*>(sums));
      continue;
    }
    float4 part[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (c < split) part[c] = ptx::load_cluster_f32x4(ptx::cluster_address(sums, c));
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (c < split) add(part[c]);
    }
  }
}

// With all threads' sums [ways, tokens, pitch] in place: bias, gate, residual, and the store of
// this CTA's share of the cluster's columns, for `live` tokens.
__device__ inline void panel_finish(const PanelArgs& a, const PanelWork& work, const float* sums,
                                    int live) {
  const SkinnyParams& p = a.p;
  const int split = a.config.split, rank = static_cast<int>(blockIdx.x) % split;
  const int ways = panel_ways(a.config.groups, p.m);
  const int way_stride = 8 * panel_tiles(p.m) * a.smem.pitch;
  const int per_group = p.gated ? 2 : 4;  // fours of columns
  const int fours = work.count * per_group;
  const int begin = fours * rank / split, width = fours * (rank + 1) / split - begin;
  split > 1 ? ptx::cluster_sync() : __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < width * live; i += kPanelThreads) {
    const int token = i / width, four = begin + i % width;
    const int group = four / per_group, r = 4 * (four % per_group);
    const SkinnyPart& part = p.parts[work.part];
    const int column = (work.begin + group) * 4 * per_group + r;
    const float* from = sums + token * a.smem.pitch + group * 16 + r;
    float y[4];
    panel_add_parts(from, split, ways, way_stride, y);
    if (p.gated) {
      float up[4];
      panel_add_parts(from + 8, split, ways, way_stride, up);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (column + e >= part.n) continue;
        y[e] = activate(a.gelu, y[e] + load_bias(part, column + e)) *
               (up[e] + load_bias(p.parts[1], column + e));
      }
    } else if (part.bias != nullptr || p.residual != nullptr) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (column + e >= part.n) continue;
        y[e] += load_bias(part, column + e);
        if (p.residual != nullptr) {
          y[e] += __ldcg(p.residual + token * p.residual_stride + column + e);
        }
      }
    }
    panel_store(part, token, column, y);
  }
  if (split > 1) ptx::cluster_sync();  // others may still read here
}
#endif

}  // namespace braid::cuda
