// Grouped products with many rows on Hopper: a tile of y is 128 rows of an expert by 256 rows of
// its weights (128 of each in a gated pair).
#include <fmt/format.h>

#include "braid/backend/cuda/tensor_map.h"
#include "braid/kernels/cuda/activation.cuh"
#include "braid/kernels/cuda/experts/device/expert_args.h"
#include "braid/kernels/cuda/experts/device/expert_blocks.cuh"
#include "braid/kernels/cuda/linear/device/output.cuh"
#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/kernels/cuda/ptx/tma.h"
#include "braid/kernels/cuda/ptx/wgmma.h"

namespace braid::cuda {
namespace {

using bf16 = __nv_bfloat16;
constexpr int kGroup = 128;                     // threads of a warpgroup
constexpr int kThreads = 3 * kGroup;            // one brings operands, two multiply
constexpr int kRowBytes = 2 * kTileK;           // in shared memory, swizzled
constexpr int kXBytes = kTileRows * kRowBytes;  // of a stage
constexpr int kWBytes = kTileColumns * kRowBytes;
constexpr int kStage = kXBytes + kWBytes;

struct TileArgs {
  CUtensorMap x;     // [K / 64, rows, 64] in boxes of 128 rows; unused if rows are gathered
  CUtensorMap w[2];  // [K / 64, E n, 64] in boxes of 256 rows, 128 in a gated pair
  ExpertProduct p;
};

struct TileSmem {
  uint8_t ring[kTileStages][kStage];
  uint64_t full[kTileStages], empty[kTileStages];
  ExpertBlocks blocks;
};
constexpr int kSmemBytes = sizeof(TileSmem) + 1024;  // the ring begins at a multiple of 1024

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// A tile of y. Tiles with the same weights are neighbours.
struct Tile {
  int expert, column;
  int begin, count;  // rows, up to the expert's last

  __device__ Tile(const ExpertProduct& p, const ExpertBlocks& blocks, int tile, int parts) {
    expert = blocks.expert_of(tile, p.experts, parts);
    const int own = blocks.before[expert + 1] - blocks.before[expert];
    const int local = tile - blocks.before[expert] * parts;
    column = local / own * (p.gated ? kTileColumns / 2 : kTileColumns);
    begin = __ldcg(p.begin + expert) + local % own * kTileRows;
    count = min(kTileRows, __ldcg(p.begin + expert + 1) - begin);
  }
};

struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++stage == kTileStages) stage = 0, parity ^= 1;
  }
};

// The producer warpgroup: thread 0 starts the copy engine, and all threads gather rows of x where a
// token table is given.
template <bool kGathered>
__device__ inline void produce(const TileArgs& a, TileSmem& s, int tiles, int parts) {
  constexpr int kBehind = 2;  // stages from asking for gathered rows to their arrival
  const ExpertProduct& p = a.p;
  const int thread = static_cast<int>(threadIdx.x), lane = thread & 31;
  const int steps = p.k / kTileK;
  Place place, behind;
  int flying = 0;
  const auto arrive = [&] {  // the oldest rows under way have come
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&s.full[behind.stage]);
    behind.next();
    --flying;
  };
  bool first = true;
  int used = 0;
  for (int t = static_cast<int>(blockIdx.x); t < tiles; t += static_cast<int>(gridDim.x)) {
    const Tile tile(p, s.blocks, t, parts);
    // Eight threads share a row, 16 bytes each: rows thread / 8 + 16 i.
    const uint8_t* from[kTileRows / 16];
    if constexpr (kGathered) {
#pragma unroll
      for (int i = 0; i < kTileRows / 16; ++i) {
        const int row = min(thread / 8 + 16 * i, tile.count - 1);
        from[i] = static_cast<const uint8_t*>(p.x) +
                  2 * (__ldcg(p.token + tile.begin + row) * p.x_stride) + thread % 8 * 16;
      }
    }
    const int w_row = tile.expert * p.n + tile.column;
    for (int step = 0; step < steps; ++step) {
      if (!first) ptx::mbarrier_wait(&s.empty[place.stage], place.parity ^ 1);
      uint8_t* x = s.ring[place.stage];
      uint8_t* w = x + kXBytes;
      uint64_t* full = &s.full[place.stage];
      if (thread == 0) {
        ptx::mbarrier_arrive_expect(full, kGathered ? kWBytes : kStage);
        ptx::tma_load_3d(w, &a.w[0], full, 0, w_row, step);
        if (p.gated) ptx::tma_load_3d(w + kWBytes / 2, &a.w[1], full, 0, w_row, step);
        if (!kGathered) ptx::tma_load_3d(x, &a.x, full, 0, tile.begin, step);
      }
      if constexpr (kGathered) {
#pragma unroll
        for (int i = 0; i < kTileRows / 16; ++i) {
          const int row = thread / 8 + 16 * i;
          // A product's rows do not meet: any data may follow the last row.
          if (row < tile.count) {
            ptx::cp_async_16(x + row * kRowBytes + (thread % 8 ^ row % 8) * 16,
                             from[i] + step * kRowBytes, true);
          }
        }
        ptx::cp_async_commit();
        if (++flying > kBehind) {
          ptx::cp_async_wait<kBehind>();
          arrive();
        }
      }
      place.next();
      if (++used == kTileStages) first = false;
    }
  }
  if constexpr (kGathered) {
    ptx::cp_async_wait<0>();
    while (flying > 0) arrive();
  }
}

// Stores y of a warpgroup's 64 rows from the sums in registers.
__device__ inline void store_tile(const ExpertProduct& p, const Tile& tile, int row0,
                                  const float (&acc)[kTileColumns / 2]) {
  const int lane = static_cast<int>(threadIdx.x) & 31,
            warp = static_cast<int>(threadIdx.x) / 32 & 3;
  const auto bias = [&](const ExpertWeight& w, int column) {
    if (w.bias == nullptr) return 0.f;
    return load_float(w.bias, w.bias_dtype, static_cast<int64_t>(tile.expert) * p.n + column);
  };
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = row0 + 16 * warp + lane / 4 + 8 * r;
    if (row >= tile.count) continue;
    auto* to = static_cast<bf16*>(p.y) + (tile.begin + row) * p.y_stride;
    if (p.gated) {
#pragma unroll
      for (int j = 0; j < kTileColumns / 16; ++j) {
        const int column = tile.column + 8 * j + 2 * (lane & 3);
        if (column >= p.n) break;
        float y[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int at = 4 * j + 2 * r + c;
          y[c] = activate(p.gelu, acc[at] + bias(p.w[0], column + c)) *
                 (acc[at + kTileColumns / 4] + bias(p.w[1], column + c));
        }
        *reinterpret_cast<uint32_t*>(to + column) = ptx::pack<bf16>(y[0], y[1]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kTileColumns / 8; ++j) {
        const int column = tile.column + 8 * j + 2 * (lane & 3);
        if (column >= p.n) break;
        const int at = 4 * j + 2 * r;
        *reinterpret_cast<uint32_t*>(to + column) =
            ptx::pack<bf16>(acc[at] + bias(p.w[0], column), acc[at + 1] + bias(p.w[0], column + 1));
      }
    }
  }
}

// A consumer warpgroup: multiplies 64 of a tile's rows.
__device__ inline void consume(const TileArgs& a, TileSmem& s, int tiles, int parts, int group) {
  using Product = ptx::Wgmma<bf16, kTileColumns>;
  constexpr uint32_t kStep = 16 * sizeof(bf16) / 16;  // a descriptor's step for a k of 16
  const ExpertProduct& p = a.p;
  const int steps = p.k / kTileK;
  const bool arrives = (threadIdx.x & 31) == 0;
  const uint32_t ring = ptx::wgmma_descriptor(s.ring[0], 0);
  Place place;
  for (int t = static_cast<int>(blockIdx.x); t < tiles; t += static_cast<int>(gridDim.x)) {
    const Tile tile(p, s.blocks, t, parts);
    float acc[kTileColumns / 2];
    int last = 0;
    if (64 * group >= tile.count) {  // no rows: stages only pass
      for (int step = 0; step < steps; ++step) {
        ptx::mbarrier_wait(&s.full[place.stage], place.parity);
        if (arrives) ptx::mbarrier_arrive(&s.empty[place.stage]);
        place.next();
      }
      continue;
    }
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(&s.full[place.stage], place.parity);
      const uint32_t stage = ring + place.stage * (kStage / 16);
      const uint32_t x = stage + group * (64 * kRowBytes / 16), w = stage + kXBytes / 16;
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < kTileK / 16; ++k) {
        Product::ss(acc, x + k * kStep, w + k * kStep, step > 0 || k > 0);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the stage before is free
      if (arrives && step > 0) ptx::mbarrier_arrive(&s.empty[last]);
      last = place.stage;
      place.next();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(acc);
    if (arrives) ptx::mbarrier_arrive(&s.empty[last]);
    store_tile(p, tile, 64 * group, acc);
  }
}
#endif

template <bool kGathered>
__global__ void __launch_bounds__(kThreads, 1)
    expert_tiles_kernel(const __grid_constant__ TileArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ uint8_t raw[];
  auto& s = *reinterpret_cast<TileSmem*>(raw + (-ptx::smem_address(raw) & 1023));
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroup, 0);
  ptx::grid_launch_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kTileStages; ++i) {
      ptx::mbarrier_init(&s.full[i], kGathered ? 1 + kGroup / 32 : 1);
      ptx::mbarrier_init(&s.empty[i], 2 * kGroup / 32);
    }
    ptx::fence_barrier_init();
  }
  ptx::grid_dependency_wait();
  s.blocks.make(a.p, kTileRows);
  const int columns = a.p.gated ? kTileColumns / 2 : kTileColumns;
  const int parts = (a.p.n + columns - 1) / columns;
  const int tiles = s.blocks.before[a.p.experts] * parts;
  if (group == 0) {
    ptx::set_max_registers_down<40>();
    produce<kGathered>(a, s, tiles, parts);
  } else {
    ptx::set_max_registers_up<232>();
    consume(a, s, tiles, parts, group - 1);
  }
#endif
}

CUtensorMap rows_map(const void* data, int64_t rows, int64_t row_bytes, int64_t k, int box) {
  const MapDim dims[] = {{kTileK, 0, kTileK}, {rows, row_bytes, box}, {k / kTileK, kRowBytes, 1}};
  return make_tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B, kMapWide,
                         data, dims, fmt::format("experts' {} x {}", rows, k));
}

}  // namespace

void allow_tiles_smem() {
  allow_shared_memory(expert_tiles_kernel<false>, kSmemBytes);
  allow_shared_memory(expert_tiles_kernel<true>, kSmemBytes);
}

void launch_expert_tiles(const ExpertProduct& p, int ctas, const LaunchContext& context) {
  TileArgs args = {.x = {}, .w = {}, .p = p};
  for (int i = 0; i < (p.gated ? 2 : 1); ++i) {
    args.w[i] = rows_map(p.w[i].data, int64_t{p.experts} * p.n, p.w[i].row_bytes, p.k,
                         p.gated ? kTileColumns / 2 : kTileColumns);
  }
  const auto run = [&](auto* kernel) {
    launch_kernel(context, kernel, dim3(static_cast<unsigned>(ctas)), dim3(kThreads), kSmemBytes,
                  args);
  };
  if (p.token) return run(expert_tiles_kernel<true>);
  args.x = rows_map(p.x, p.rows, 2 * p.x_stride, p.k, kTileRows);
  run(expert_tiles_kernel<false>);
}

}  // namespace braid::cuda
