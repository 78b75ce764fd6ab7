#pragma once

#include <cuda_fp16.h>

#include "braid/kernels/cuda/fused_attention/device/batch_ring.cuh"

// Products for several tokens by mma: y = x W^T over a CTA's tiles of W, with chunks dealt to warps
// as in FusedParts. A lane in a quad has eight elements of a row of W, and of a token's x, at a
// time: two mma steps take these in any order, equal for W and x.
namespace braid::cuda {

template <int kColumns>
class FusedTileSums {
  static constexpr int kTiles = kColumns / 8;

 public:
  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) d_[n][c] = 0;
    }
  }

  // Adds a chunk: `slot` [4, kFusedTileRows, 64] in swizzled rows, `x` [kFusedChunk / 32, T, 32].
  __device__ void add(const uint8_t* slot, const uint8_t* x, int tokens, bool f16) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const bool odd = g % 2 == 1;
    const auto read = [&](int sub, int row, int line) {
      uint4 w = *reinterpret_cast<const uint4*>(slot + (sub * kFusedTileRows + row) * 128 +
                                                (line ^ g) * 16);
      if (f16) w = make_uint4(as_bf16(w.x), as_bf16(w.y), as_bf16(w.z), as_bf16(w.w));
      return w;
    };
#pragma unroll
    for (int sub = 0; sub < 4; ++sub) {
      // Rows with odd numbers read the second step first: no two of a phase share a bank.
      const int first = odd ? t + 4 : t, second = odd ? t : t + 4;
      const uint4 low[2] = {read(sub, g, first), read(sub, g, second)};
      const uint4 high[2] = {read(sub, g + 8, first), read(sub, g + 8, second)};
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint4 w0 = pick(low, odd, step), w1 = pick(high, odd, step);
        const uint32_t a[2][4] = {{w0.x, w1.x, w0.y, w1.y}, {w0.z, w1.z, w0.w, w1.w}};
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          const int token = min(g + 8 * n, tokens - 1);
          const uint4 b = *reinterpret_cast<const uint4*>(
              x + ((sub * 2 + step) * tokens + token) * 64 + t * 16);
          ptx::mma_16816<__nv_bfloat16>(d_[n], a[0], b.x, b.y);
          ptx::mma_16816<__nv_bfloat16>(d_[n], a[1], b.z, b.w);
        }
      }
    }
  }

  // Stores [kFusedTileRows, kColumns].
  __device__ void put(float* sums) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        *reinterpret_cast<float2*>(sums + (g + 8 * r) * kColumns + 8 * n + 2 * t) =
            make_float2(d_[n][2 * r], d_[n][2 * r + 1]);
      }
    }
  }

 private:
  __device__ static uint4 pick(const uint4 (&w)[2], bool odd, int step) {
    const uint4 &a = w[step], &b = w[1 - step];
    return make_uint4(odd ? b.x : a.x, odd ? b.y : a.y, odd ? b.z : a.z, odd ? b.w : a.w);
  }
  __device__ static uint32_t as_bf16(uint32_t pair) {
    const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    return ptx::pack<__nv_bfloat16>(f.x, f.y);
  }

  float d_[kTiles][4];
};

// This warp's chunk sums, to pieces in `sums`. is_f16(tile): whether the tile's weights are f16.
template <int kColumns, class IsF16>
__device__ inline void multiply_tiles(FusedRing& ring, const FusedParts& parts, int chunks,
                                      const uint8_t* x, int tokens, float* sums,
                                      const IsF16& is_f16) {
  constexpr int kPiece = kFusedTileRows * kColumns;
  const int part = parts.part_of(threadIdx.x / 32);
  const int end = parts.parts.end(part);
  FusedTileSums<kColumns> sum;
  sum.clear();
#pragma unroll 1
  for (int unit = parts.parts.begin(part); unit < end; ++unit) {
    const int tile = unit / chunks, chunk = unit - tile * chunks;
    sum.add(ring.wait(), x + chunk * (kFusedChunk * 2) * tokens, tokens, is_f16(tile));
    ring.release();
    if (chunk + 1 < chunks && unit + 1 < end) continue;
    sum.put(sums + (part + tile) * kPiece);
    sum.clear();
  }
}

// A row's product with a token, from all parts' pieces with chunks in the row's tile.
__device__ inline float tile_sum(const FusedParts& parts, int chunks, const float* sums,
                                 int columns, int row, int token) {
  const int tile = row / kFusedTileRows;
  const int first = parts.parts.owner(tile * chunks);
  const int last = parts.parts.owner((tile + 1) * chunks - 1);
  float all = 0;
  for (int part = first; part <= last; ++part) {
    all += sums[((part + tile) * kFusedTileRows + row % kFusedTileRows) * columns + token];
  }
  return all;
}

// The place, in words, of pair i in a token's x.
__device__ inline int batch_x_word(int i, int token, int tokens) {
  return (i / 16 * tokens + token) * 16 + i % 16;
}

}  // namespace braid::cuda
