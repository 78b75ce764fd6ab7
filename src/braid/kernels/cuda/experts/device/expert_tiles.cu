// Grouped products with many rows on Hopper: a tile of y is 128 rows of an expert by 256 rows of
// its weights (128 each of gate and up). Pairs of CTAs share weights: L2 bounds these products.
#include <fmt/format.h>

#include "braid/backend/cuda/tensor_map.h"
#include "braid/kernels/cuda/activation.cuh"
#include "braid/kernels/cuda/experts/device/expert_args.h"
#include "braid/kernels/cuda/experts/device/expert_pieces.cuh"
#include "braid/kernels/cuda/linear/device/cluster_launch.h"
#include "braid/kernels/cuda/linear/device/output.cuh"
#include "braid/kernels/cuda/ptx/cluster.h"
#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/kernels/cuda/ptx/multicast.h"
#include "braid/kernels/cuda/ptx/stmatrix.h"
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
constexpr int kBoxRows = kTileColumns / 2;  // of weights in a copy

struct TileArgs {
  CUtensorMap x;     // [K / 64, rows, 64] in boxes of 128 rows; unused if rows are gathered
  CUtensorMap w[2];  // [K / 64, E n, 64] in boxes of 128 rows
  ExpertProduct p;
};

constexpr int kStoreColumns = 64;  // of y, that a warp turns into whole lines at a time
constexpr int kStoreBytes = 16 * 2 * kStoreColumns;

struct TileSmem {
  uint8_t ring[kTileStages][kStage];
  uint8_t store[8][kStoreBytes];  // [warp][16 rows, 64 columns] of y, swizzled
  uint64_t full[kTileStages], empty[kTileStages];
  ExpertPieces units;
};
constexpr int kSmemBytes = sizeof(TileSmem) + 1024;  // the ring begins at a multiple of 1024

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// A cluster of two CTAs does a unit of work: two blocks of an expert's rows times the same weights,
// which each CTA brings half of, or the last odd block times two blocks of columns.
struct Units {
  int parts;  // blocks of columns
  __device__ explicit Units(const ExpertProduct& p) {
    const int columns = p.gated ? kTileColumns / 2 : kTileColumns;
    parts = (p.n + columns - 1) / columns;
  }
  __device__ int operator()(int rows) const {
    const int blocks = (rows + kTileRows - 1) / kTileRows;
    return blocks / 2 * parts + blocks % 2 * ((parts + 1) / 2);
  }
};

// A CTA's tile of a unit. Units with the same weights are neighbours.
struct Tile {
  int expert, column;
  int begin, count;  // rows, up to the expert's last; 0: nothing to do
  bool shared;       // the weights are both CTAs'

  __device__ Tile(const ExpertProduct& p, const ExpertPieces& units, int unit, int parts,
                  int rank) {
    expert = units.expert_of(unit, p.experts);
    const int first = __ldcg(p.begin + expert);
    const int rows = __ldcg(p.begin + expert + 1) - first;
    const int blocks = (rows + kTileRows - 1) / kTileRows, pairs = blocks / 2;
    const int local = unit - units.before[expert];
    shared = local < pairs * parts;
    const int part = shared ? local / pairs : 2 * (local - pairs * parts) + rank;
    const int block = shared ? local % pairs * 2 + rank : blocks - 1;
    column = part * (p.gated ? kTileColumns / 2 : kTileColumns);
    begin = first + block * kTileRows;
    count = part < parts ? min(kTileRows, rows - block * kTileRows) : 0;
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
__device__ inline void produce(const TileArgs& a, TileSmem& s, int units, int rank) {
  const ExpertProduct& p = a.p;
  const Units each(p);
  const int thread = static_cast<int>(threadIdx.x);
  const int steps = p.k / kTileK;
  const auto* const x_data = static_cast<const uint8_t*>(p.x);
  Place place;
  bool first = true;
  int used = 0;
  for (int u = static_cast<int>(blockIdx.x) / 2; u < units; u += static_cast<int>(gridDim.x) / 2) {
    const Tile tile(p, s.units, u, each.parts, rank);
    // Eight threads share a row, 16 bytes each: rows thread / 8 + 16 i.
    uint32_t from[kTileRows / 16];  // in x, in units of 16 bytes
    if constexpr (kGathered) {
#pragma unroll
      for (int i = 0; i < kTileRows / 16; ++i) {
        const int row = max(0, min(thread / 8 + 16 * i, tile.count - 1));
        const auto token = static_cast<uint32_t>(__ldcg(p.token + tile.begin + row));
        from[i] = token * static_cast<uint32_t>(p.x_stride / 8) + thread % 8;
      }
    }
    const int row = tile.expert * p.n + tile.column;  // of the weights
    const int next = p.gated ? row : row + kBoxRows;  // of the tile's other half
    for (int step = 0; step < steps; ++step) {
      if (!first) ptx::mbarrier_wait(&s.empty[place.stage], place.parity ^ 1);
      uint8_t* x = s.ring[place.stage];
      uint8_t* w = x + kXBytes;
      uint64_t* full = &s.full[place.stage];
      if (thread == 0) {
        if (tile.count == 0) {
          ptx::mbarrier_arrive(full);
        } else {
          ptx::mbarrier_arrive_expect(full, kGathered ? kWBytes : kStage);
          if (!tile.shared) {
            ptx::tma_load_3d(w, &a.w[0], full, 0, row, step);
            ptx::tma_load_3d(w + kWBytes / 2, &a.w[p.gated], full, 0, next, step);
          } else if (rank == 0) {
            ptx::tma_multicast_3d(w, &a.w[0], full, 0, row, step, 3);
          } else {
            ptx::tma_multicast_3d(w + kWBytes / 2, &a.w[p.gated], full, 0, next, step, 3);
          }
          if (!kGathered) ptx::tma_load_3d(x, &a.x, full, 0, tile.begin, step);
        }
      }
      if constexpr (kGathered) {
#pragma unroll
        for (int i = 0; i < kTileRows / 16; ++i) {
          const int at = thread / 8 + 16 * i;
          // A product's rows do not meet: any data may follow the last row.
          if (at < tile.count) {
            ptx::cp_async_16(x + at * kRowBytes + (thread % 8 ^ at % 8) * 16,
                             x_data + uint64_t{16} * (from[i] + 8 * step), true);
          }
        }
        ptx::mbarrier_arrive_copied(full);
      }
      place.next();
      if (++used == kTileStages) first = false;
    }
  }
}

// Adds a weight's bias to the sums of its columns: acc has kCount blocks of eight columns.
template <int kCount>
__device__ inline void add_bias(const ExpertProduct& p, const ExpertWeight& w, int expert,
                                int first, float* acc) {
  if (w.bias == nullptr) return;
  const int64_t row = static_cast<int64_t>(expert) * p.n;
  const int column = first + 2 * (static_cast<int>(threadIdx.x) & 3);
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int at = column + 8 * j + c;
      const float bias = at < p.n ? load_float(w.bias, w.bias_dtype, row + at) : 0;
      acc[4 * j + c] += bias;
      acc[4 * j + 2 + c] += bias;
    }
  }
}

// Stores y of a warpgroup's 64 rows from the sums in registers. A warp has 16 rows: 64 columns at
// a time go through shared memory, so that a store writes whole lines.
template <bool kGated>
__device__ inline void store_tile(const ExpertProduct& p, TileSmem& s, const Tile& tile, int row0,
                                  float (&acc)[kTileColumns / 2]) {
  constexpr int kColumns = kGated ? kTileColumns / 2 : kTileColumns;
  const int lane = static_cast<int>(threadIdx.x) & 31,
            warp = static_cast<int>(threadIdx.x) / 32 & 3;
  add_bias<kColumns / 8>(p, p.w[0], tile.expert, tile.column, acc);
  if (kGated) add_bias<kColumns / 8>(p, p.w[1], tile.expert, tile.column, acc + kTileColumns / 4);
  const auto pair = [&](int at) {
    if constexpr (kGated) {
      return ptx::pack<bf16>(activate(p.gelu, acc[at]) * acc[at + kTileColumns / 4],
                             activate(p.gelu, acc[at + 1]) * acc[at + 1 + kTileColumns / 4]);
    } else {
      return ptx::pack<bf16>(acc[at], acc[at + 1]);
    }
  };
  uint8_t* const staged = s.store[row0 / 16 + warp];
  // Matrices of 8 x 8: rows 0 to 7, then 8 to 15, of eight columns, then the same of the next.
  uint8_t* const written = staged + lane % 16 * 128;
#pragma unroll
  for (int first = 0; first < kColumns; first += kStoreColumns) {
    if (tile.column + first >= p.n) break;
#pragma unroll
    for (int j = 0; j < kStoreColumns / 8; j += 2) {
      const int at = 4 * (first / 8 + j);
      const uint32_t values[4] = {pair(at), pair(at + 2), pair(at + 4), pair(at + 6)};
      ptx::stmatrix_x4(written + ((j + lane / 16) ^ lane % 8) * 16, values);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 4 * i + lane / 8, column = tile.column + first + lane % 8 * 8;
      const auto y =
          *reinterpret_cast<const uint4*>(staged + row * 128 + (lane % 8 ^ row % 8) * 16);
      const int64_t to = tile.begin + row0 + 16 * warp + row;
      if (row0 + 16 * warp + row < tile.count && column < p.n) {
        *reinterpret_cast<uint4*>(static_cast<bf16*>(p.y) + to * p.y_stride + column) = y;
      }
    }
    __syncwarp();
  }
}

// A consumer warpgroup: multiplies 64 of a tile's rows.
template <bool kGathered>
__device__ inline void consume(const TileArgs& a, TileSmem& s, int units, int rank, int group) {
  using Product = ptx::Wgmma<bf16, kTileColumns>;
  constexpr uint32_t kStep = 16 * sizeof(bf16) / 16;  // a descriptor's step for a k of 16
  const ExpertProduct& p = a.p;
  const Units each(p);
  const int steps = p.k / kTileK;
  const uint32_t lane = threadIdx.x & 31;
  const uint32_t ring = ptx::wgmma_descriptor(s.ring[0], 0);
  const auto release = [&](int stage) {  // to both CTAs, which both write there
    if (lane < 2) ptx::mbarrier_arrive_cluster(&s.empty[stage], lane);
  };
  Place place;
  for (int u = static_cast<int>(blockIdx.x) / 2; u < units; u += static_cast<int>(gridDim.x) / 2) {
    const Tile tile(p, s.units, u, each.parts, rank);
    float acc[kTileColumns / 2];
    int last = 0;
    if (64 * group >= tile.count) {  // no rows: stages only pass
      for (int step = 0; step < steps; ++step) {
        ptx::mbarrier_wait(&s.full[place.stage], place.parity);
        release(place.stage);
        place.next();
      }
      continue;
    }
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(&s.full[place.stage], place.parity);
      if (kGathered) ptx::fence_proxy_async();
      const uint32_t stage = ring + place.stage * (kStage / 16);
      const uint32_t x = stage + group * (64 * kRowBytes / 16), w = stage + kXBytes / 16;
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < kTileK / 16; ++k) {
        Product::ss(acc, x + k * kStep, w + k * kStep, step > 0 || k > 0);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the stage before is free
      if (step > 0) release(last);
      last = place.stage;
      place.next();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(acc);
    release(last);
    if (p.gated) {
      store_tile<true>(p, s, tile, 64 * group, acc);
    } else {
      store_tile<false>(p, s, tile, 64 * group, acc);
    }
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
  const int rank = static_cast<int>(ptx::cluster_rank());
  ptx::grid_launch_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kTileStages; ++i) {
      ptx::mbarrier_init(&s.full[i], kGathered ? 1 + kGroup : 1);
      ptx::mbarrier_init(&s.empty[i], 2 * 2 * kGroup / 32);
    }
    ptx::fence_barrier_init();
  }
  ptx::cluster_sync();
  ptx::grid_dependency_wait();
  s.units.make(a.p, Units(a.p));
  const int units = s.units.before[a.p.experts];
  if (group == 0) {
    ptx::set_max_registers_down<40>();
    produce<kGathered>(a, s, units, rank);
  } else {
    ptx::set_max_registers_up<232>();
    consume<kGathered>(a, s, units, rank, group - 1);
  }
  // A CTA's ring and barriers are there until the other CTA no longer writes.
  __syncwarp();
  ptx::cluster_sync();
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
    args.w[i] = rows_map(p.w[i].data, int64_t{p.experts} * p.n, p.w[i].row_bytes, p.k, kBoxRows);
  }
  if (!p.token) args.x = rows_map(p.x, p.rows, 2 * p.x_stride, p.k, kTileRows);
  launch_clusters(context, p.token ? expert_tiles_kernel<true> : expert_tiles_kernel<false>,
                  ctas / 2, 2, kThreads, kSmemBytes, args);
}

}  // namespace braid::cuda
