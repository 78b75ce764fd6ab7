#pragma once

#include "braid/kernels/cuda/linear/device/skinny_args.h"
#include "braid/kernels/cuda/linear/device/skinny_input.cuh"
#include "braid/kernels/cuda/linear/device/weight_steps.cuh"
#include "braid/kernels/cuda/ptx/once.h"

// The work of a CTA in the skinny product, and the warps that copy weights to shared memory.
namespace braid::cuda {

constexpr int kConsumers = 32 * kSkinnyWarps;
// Warps that fill the ring: a copy costs some 50 cycles to issue, a stage some hundreds to start.
constexpr int kProducers = 4;
constexpr int kSkinnyThreads = kConsumers + 32 * kProducers;
static_assert(kProducers <= kSkinnyMinStages);

// A CTA's rows and slice of K, and the order of stages.
struct SkinnyWork {
  int begin, end;  // units
  int k_begin, k_size;
  int per_tile;  // units of a tile: 16 rows, or 8 pairs
  int num_tiles, num_chunks;

  __device__ explicit SkinnyWork(const SkinnyArgs& args) {
    const int clusters = gridDim.x / args.cluster;
    const int id = blockIdx.x / args.cluster, rank = blockIdx.x % args.cluster;
    const int base = args.units / clusters, extra = args.units % clusters;
    begin = id * base + min(id, extra);
    end = begin + base + (id < extra ? 1 : 0);
    k_begin = min(rank * args.k_per_cta, args.p.k);
    k_size = min(args.k_per_cta, args.p.k - k_begin);
    per_tile = args.p.gated ? 8 : kSkinnyTileRows;
    num_tiles = (end - begin + per_tile - 1) / per_tile;
    num_chunks = (k_size + args.chunk - 1) / args.chunk;
  }
};

// A place in the ring, and the parity of the place's current use.
struct SkinnyPlace {
  int stage;
  uint32_t parity;
  __device__ void advance(int by, int stages) {
    for (stage += by; stage >= stages; stage -= stages) parity ^= 1;
  }
};

// Part and column of a row in a tile; part -1 past the end.
struct SkinnyRow {
  int part, column;
  __device__ SkinnyRow(const SkinnyArgs& args, const SkinnyWork& work, int tile, int r) {
    int unit = work.begin + tile * work.per_tile + (args.p.gated ? r & 7 : r);
    part = args.p.gated ? r >> 3 : 0;
    if (unit >= work.end) {
      part = -1;
    } else if (!args.p.gated) {
      while (unit >= args.p.parts[part].n) unit -= args.p.parts[part++].n;
    }
    column = unit;
  }
};

template <DType kType>
__device__ inline int64_t skinny_bytes(int64_t elems) {
  if constexpr (kType == DType::f32) return elems * 4;
  if constexpr (kType == DType::f16 || kType == DType::bf16) return elems * 2;
  if constexpr (kType == DType::q4_0) return elems / 32 * sizeof(BlockQ4_0);
  if constexpr (kType == DType::q4_1) return elems / 32 * sizeof(BlockQ4_1);
  if constexpr (kType == DType::q5_0) return elems / 32 * sizeof(BlockQ5_0);
  if constexpr (kType == DType::q5_1) return elems / 32 * sizeof(BlockQ5_1);
  if constexpr (kType == DType::q8_0) return elems / 32 * sizeof(BlockQ8_0);
  if constexpr (kType == DType::q4_k) return elems / 256 * sizeof(BlockQ4_K);
  if constexpr (kType == DType::q5_k) return elems / 256 * sizeof(BlockQ5_K);
  if constexpr (kType == DType::q6_k) return elems / 256 * sizeof(BlockQ6_K);
}

// Begin of the CTA's slice in a tile's row; null past the end.
template <DType kType>
__device__ inline const uint8_t* skinny_row(const SkinnyArgs& args, const SkinnyWork& work,
                                            int tile, int r) {
  const SkinnyRow row(args, work, tile, r);
  if (row.part < 0) return nullptr;
  const SkinnyPart& part = args.p.parts[row.part];
  return static_cast<const uint8_t*>(part.w) + row.column * part.row_bytes +
         skinny_bytes<kType>(work.k_begin);
}

__device__ inline uint32_t low_bits(const void* p) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)) & 15;
}

struct SkinnyBarriers {
  uint64_t* full;      // [stages]
  uint64_t* empty;     // [stages]
  uint64_t* received;  // [warps], parts of a tile from the cluster's other CTAs
  uint64_t* consumed;  // [warps], all CTAs have summed theirs
  __device__ SkinnyBarriers(const SkinnyArgs& args, uint8_t* smem) {
    full = reinterpret_cast<uint64_t*>(smem + args.smem.barriers);
    empty = full + args.stages;
    received = empty + args.stages;
    consumed = received + kSkinnyWarps;
  }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// A stage's rows, a row per lane: address and size of the row's copy.
template <DType kType>
struct SkinnySource {
  const uint8_t* begin;  // 16-byte aligned
  uint32_t bytes = 0;    // a multiple of 16; 0 for lanes without a row
  __device__ SkinnySource(const SkinnyArgs& args, const SkinnyWork& work, int tile, int chunk) {
    const int lane = threadIdx.x & 31;
    if (lane >= kSkinnyTileRows || tile >= work.num_tiles) return;
    const uint8_t* row = skinny_row<kType>(args, work, tile, lane);
    if (row == nullptr) return;
    const int k = chunk * args.chunk;
    row += skinny_bytes<kType>(k);
    const uint32_t shift = low_bits(row);
    begin = row - shift;
    bytes = static_cast<uint32_t>(skinny_bytes<kType>(min(args.chunk, work.k_size - k)));
    bytes = (bytes + shift + 15) / 16 * 16;
  }
  __device__ void copy(const SkinnyArgs& args, uint8_t* ring, const SkinnyBarriers& barriers,
                       const SkinnyPlace& place, uint64_t policy) const {
    const int lane = threadIdx.x & 31;
    const uint32_t all = __reduce_add_sync(0xffffffffu, bytes);
    ptx::mbarrier_wait(&barriers.empty[place.stage], place.parity ^ 1);
    if (lane == 0) ptx::mbarrier_arrive_expect(&barriers.full[place.stage], all);
    __syncwarp();
    if (bytes > 0) {
      ptx::bulk_copy(ring + (place.stage * kSkinnyTileRows + lane) * args.smem.pitch, begin, bytes,
                     &barriers.full[place.stage], policy);
    }
  }
};

// The warps that fill the ring. If all warps share a stage, the filling warps take stages in turns.
// If a stage belongs to a single warp, each filling warp serves two warps: a warp that waits on a
// barrier must see all phases.
template <DType kType>
__device__ inline void skinny_produce(const SkinnyArgs& args, const SkinnyWork& work, uint8_t* ring,
                                      const SkinnyBarriers& barriers) {
  const int producer = threadIdx.x / 32 - kSkinnyWarps;
  const uint64_t policy = ptx::evict_first_policy();
  const int chunks = work.num_chunks;
  if (args.split_k) {
    const int count = work.num_tiles * chunks;
    SkinnyPlace place{producer, 0};
    for (int n = producer; n < count; n += kProducers) {
      SkinnySource<kType>(args, work, n / chunks, n % chunks)
          .copy(args, ring, barriers, place, policy);
      place.advance(kProducers, args.stages);
    }
    return;
  }
  const int depth = args.stages / kSkinnyWarps;
  SkinnyPlace place{0, 0};  // in a warp's own stages
  for (int round = 0; round < work.num_tiles; round += kSkinnyWarps) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int warp = producer; warp < kSkinnyWarps; warp += kProducers) {
        if (round + warp >= work.num_tiles) break;
        const SkinnyPlace at{place.stage * kSkinnyWarps + warp, place.parity};
        SkinnySource<kType>(args, work, round + warp, chunk).copy(args, ring, barriers, at, policy);
      }
      place.advance(1, depth);
    }
  }
}
#endif

// A stage by plain loads, for any alignment; the end of a float row is padded with zeros. Out of
// line, to keep the loop over stages short.
template <DType kType>
__device__ __noinline__ void skinny_copy(const SkinnyArgs& args, const SkinnyWork& work, int tile,
                                         int chunk, uint8_t* stage) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const int k = chunk * args.chunk;
  const int elems = min(args.chunk, work.k_size - k);
  const int bytes = static_cast<int>(skinny_bytes<kType>(elems));
  const int padded = static_cast<int>(skinny_bytes<kType>((elems + 31) / 32 * 32));
  for (int r = warp; r < kSkinnyTileRows; r += kSkinnyWarps) {
    const uint8_t* from = skinny_row<kType>(args, work, tile, r);
    if (from == nullptr) continue;
    from += skinny_bytes<kType>(k);
    uint8_t* to = stage + r * args.smem.pitch;
    const int wide = low_bits(from) == 0 ? bytes / 16 * 16 : 0;
    for (int i = 16 * lane; i < wide; i += 512) {
      *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i);
    }
    for (int i = wide + lane; i < padded; i += 32) to[i] = i < bytes ? from[i] : 0;
  }
}

}  // namespace braid::cuda
