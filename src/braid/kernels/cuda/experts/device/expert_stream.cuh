#pragma once

#include "braid/kernels/cuda/activation.cuh"
#include "braid/kernels/cuda/experts/device/expert_args.h"
#include "braid/kernels/cuda/experts/device/expert_pieces.cuh"
#include "braid/kernels/cuda/linear/device/output.cuh"
#include "braid/kernels/cuda/linear/device/weight_steps.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/load.h"

namespace braid::cuda {

constexpr int kStreamThreads = 32 * kExpertWarps;
constexpr int kSumsPitch = kStreamBlockRows + 1;

// 32 rows of an expert's weights, 16 of each weight in a gated pair, and a block of x's rows.
struct StreamUnit {
  int expert, column, count;
  int64_t first;  // row of y

  __device__ StreamUnit(const ExpertProduct& p, const ExpertPieces& blocks, int unit, int parts,
                        int live) {
    // Units of the same weights are neighbours: L2 then has the weights.
    expert = blocks.expert_of(unit, p.experts, parts);
    const int own = blocks.before[expert + 1] - blocks.before[expert];
    const int local = unit - blocks.before[expert] * parts;
    column = local / own * (p.gated ? kStreamUnitRows / 2 : kStreamUnitRows);
    const int row = local % own * kStreamBlockRows;
    count = min(kStreamBlockRows, ExpertPieces::rows_of(p, expert, live) - row);
    first = row + (p.begin ? __ldcg(p.begin + expert) : 0);
  }
};

// Eight elements of x in a step of 32 for thread t in a quad, in the order of WeightStep; zeros
// behind the row's end.
template <bool kSplit, bool kAligned>
__device__ inline uint4 load_x(const __nv_bfloat16* row, int step, int t, int k) {
  const int at = 32 * step + (kSplit ? 4 : 8) * t;
  if constexpr (kSplit) {  // rows of whole blocks
    const uint2 a = __ldcg(reinterpret_cast<const uint2*>(row + at));
    const uint2 b = __ldcg(reinterpret_cast<const uint2*>(row + at + 16));
    return join(a, b);
  } else if constexpr (kAligned) {
    return at < k ? __ldcg(reinterpret_cast<const uint4*>(row + at)) : uint4{};
  } else {
    uint32_t e[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      e[i] = at + i < k ? __ldcg(reinterpret_cast<const unsigned short*>(row) + at + i) : 0;
    }
    return {e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16};
  }
}

// Eight weights likewise, and the scales of block formats.
template <DType kType, bool kAligned>
__device__ inline uint4 load_weights(const uint8_t* row, int step, int t, int k, float* scale,
                                     float* zero) {
  using Step = WeightStep<kType>;
  const int at = 32 * step + 8 * t;
  if constexpr (Step::kGroups > 0) {
    return Step::load(row, step, t, scale, zero);
  } else if constexpr (!kAligned) {
    float e[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) e[i] = at + i < k ? load_float(row, kType, at + i) : 0;
    return {pack_bf16(e[0], e[1]), pack_bf16(e[2], e[3]), pack_bf16(e[4], e[5]),
            pack_bf16(e[6], e[7])};
  } else if constexpr (kType == DType::bf16) {
    return at < k ? ptx::load_once(reinterpret_cast<const uint4*>(row + 2 * at)) : uint4{};
  } else {
    return at < k ? Step::load(row, step, t, scale, zero) : uint4{};
  }
}

// acc += every ways-th step of K from `way` on, for kTiles tiles with 8 rows of x.
template <DType kType, bool kAligned, int kTiles>
__device__ inline void stream_multiply(const StreamArgs& a, const StreamUnit& unit, int way,
                                       float (&acc)[2][kTiles][4]) {
  using Step = WeightStep<kType>;
  constexpr int kGroups = Step::kGroups;
  // Steps with operands under way at a time: as many as registers hold.
  constexpr int kFlying = kTiles == 4 ? 1 : kTiles == 1 && kGroups == 0 ? 4 : 2;
  const ExpertProduct& p = a.p;
  const int lane = static_cast<int>(threadIdx.x) & 31, g = lane >> 2, t = lane & 3;
  const uint8_t* w[2][2];
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const ExpertWeight& weight = p.w[p.gated ? tile : 0];
      // Behind the last row the last one is multiplied again, and dropped.
      const int row = min(unit.column + (p.gated ? 0 : 16 * tile) + 8 * half + g, p.n - 1);
      w[tile][half] = static_cast<const uint8_t*>(weight.data) +
                      (static_cast<int64_t>(unit.expert) * p.n + row) * weight.row_bytes;
    }
  }
  const __nv_bfloat16* x[kTiles];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const int i = 8 * j + g;
    x[j] = nullptr;
    if (i >= unit.count) continue;
    const int64_t row = unit.first + i;
    x[j] = static_cast<const __nv_bfloat16*>(p.x) +
           (p.token ? __ldcg(p.token + row) : row) * p.x_stride +
           (p.begin ? 0 : unit.expert * p.x_step);
  }
  const int steps = (p.k + 31) / 32;
  for (int first = way; first < steps; first += kFlying * a.ways) {
    uint4 flying[kFlying][2][2], b[kFlying][kTiles];
    float scale[kFlying][2][2][kGroups + 1], zero[kFlying][2][2][kGroups + 1];
#pragma unroll
    for (int f = 0; f < kFlying; ++f) {
      // Behind the last step x and plain weights are zeros.
      const bool there = first + f * a.ways < steps;
      const int step = kGroups == 0 || there ? first + f * a.ways : first;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        flying[f][i / 2][i % 2] = load_weights<kType, kAligned>(
            w[i / 2][i % 2], step, t, p.k, scale[f][i / 2][i % 2], zero[f][i / 2][i % 2]);
      }
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        b[f][j] = x[j] && there ? load_x<Step::kSplit, kAligned>(x[j], step, t, p.k) : uint4{};
      }
    }
#pragma unroll
    for (int f = 0; f < kFlying; ++f) {
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const uint4 &w0 = flying[f][tile][0], &w1 = flying[f][tile][1];
        const uint32_t r[2][4] = {{w0.x, w1.x, w0.y, w1.y}, {w0.z, w1.z, w0.w, w1.w}};
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          const uint4& xs = b[f][j];
          if constexpr (kGroups == 0) {
            ptx::mma_16816<__nv_bfloat16>(acc[tile][j], r[0], xs.x, xs.y);
            ptx::mma_16816<__nv_bfloat16>(acc[tile][j], r[1], xs.z, xs.w);
          } else {
            // Sums of x, for the offset shared by a group's elements.
            constexpr uint32_t kOnes[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
            float part[kGroups][4] = {}, sums[kGroups][4] = {};
            ptx::mma_16816<__nv_bfloat16>(part[0], r[0], xs.x, xs.y);
            ptx::mma_16816<__nv_bfloat16>(part[kGroups - 1], r[1], xs.z, xs.w);
            ptx::mma_16816<__nv_bfloat16>(sums[0], kOnes, xs.x, xs.y);
            ptx::mma_16816<__nv_bfloat16>(sums[kGroups - 1], kOnes, xs.z, xs.w);
#pragma unroll
            for (int i = 0; i < kGroups; ++i) {
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                acc[tile][j][e] +=
                    scale[f][tile][e / 2][i] * part[i][e] + zero[f][tile][e / 2][i] * sums[i][e];
              }
            }
          }
        }
      }
    }
  }
}

// Adds the sums of all warps of a unit in their order, then bias and gate, and stores y.
template <int kTiles>
__device__ inline void stream_finish(const StreamArgs& a, const StreamUnit& unit, int group,
                                     int way, float (*sums)[kStreamUnitRows][kSumsPitch],
                                     const float (&acc)[2][kTiles][4]) {
  const ExpertProduct& p = a.p;
  const int lane = static_cast<int>(threadIdx.x) & 31, g = lane >> 2, t = lane & 3;
  const int threads = 32 * a.ways, first_warp = group * a.ways;
  const auto sync = [&] {
    a.ways == 1 ? __syncwarp() : ptx::named_barrier_sync(1 + group, threads);
  };
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums[first_warp + way][16 * tile + 8 * (e / 2) + g][8 * j + 2 * t + e % 2] =
            acc[tile][j][e];
      }
    }
  }
  sync();
  const auto total = [&](int row, int i) {
    float sum = 0;
    for (int w = 0; w < a.ways; ++w) sum += sums[first_warp + w][row][i];
    return sum;
  };
  const auto bias = [&](const ExpertWeight& w, int column) {
    if (w.bias == nullptr) return 0.f;
    return load_float(w.bias, w.bias_dtype, static_cast<int64_t>(unit.expert) * p.n + column);
  };
  const int width = p.gated ? kStreamUnitRows / 2 : kStreamUnitRows;
  for (int i = 32 * way + lane; i < width * unit.count; i += threads) {
    const int row = i / width, local = i % width, column = unit.column + local;
    if (column >= p.n) continue;
    float y = total(local, row) + bias(p.w[0], column);
    if (p.gated) y = activate(p.gelu, y) * (total(16 + local, row) + bias(p.w[1], column));
    auto* to = static_cast<__nv_bfloat16*>(p.y) + (unit.first + row) * p.y_stride +
               (p.begin ? 0 : unit.expert * p.y_step);
    to[column] = __float2bfloat16_rn(y);
  }
  sync();  // the next unit's sums take the same place
}

template <DType kType, bool kAligned>
__global__ void __launch_bounds__(kStreamThreads, 2)
    expert_stream_kernel(const __grid_constant__ StreamArgs a) {
  __shared__ float sums[kExpertWarps][kStreamUnitRows][kSumsPitch];
  __shared__ ExpertPieces blocks;
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const ExpertProduct& p = a.p;
  blocks.make(p, [](int rows) { return (rows + kStreamBlockRows - 1) / kStreamBlockRows; });
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int group = warp / a.ways, way = warp % a.ways, groups = kExpertWarps / a.ways;
  const int columns = p.gated ? kStreamUnitRows / 2 : kStreamUnitRows;
  const int parts = (p.n + columns - 1) / columns, units = blocks.before[p.experts] * parts;
  const int live = p.begin ? 0 : ExpertPieces::live_rows(p);
  for (int u = static_cast<int>(blockIdx.x) * groups + group; u < units;
       u += static_cast<int>(gridDim.x) * groups) {
    const StreamUnit unit(p, blocks, u, parts, live);
    const auto run = [&]<int kTiles>() {
      float acc[2][kTiles][4] = {};
      stream_multiply<kType, kAligned, kTiles>(a, unit, way, acc);
      stream_finish<kTiles>(a, unit, group, way, sums, acc);
    };
    if (kAligned && unit.count <= 8) {
      run.template operator()<1>();
    } else if (kAligned && unit.count <= 16) {
      run.template operator()<2>();
    } else {
      run.template operator()<4>();
    }
  }
}

template <DType kType>
void launch_expert_stream(const StreamArgs& args, int ctas, const LaunchContext& context) {
  const auto run = [&](auto* kernel) {
    launch_kernel(context, kernel, dim3(static_cast<unsigned>(ctas)), dim3(kStreamThreads), 0,
                  args);
  };
  if constexpr (WeightStep<kType>::kGroups == 0) {
    if (!args.aligned) return run(expert_stream_kernel<kType, false>);
  }
  run(expert_stream_kernel<kType, true>);
}

}  // namespace braid::cuda
