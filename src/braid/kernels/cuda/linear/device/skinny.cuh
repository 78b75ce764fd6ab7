#pragma once

#include "braid/kernels/cuda/linear/device/skinny_args.h"
#include "braid/kernels/cuda/linear/device/skinny_input.cuh"
#include "braid/kernels/cuda/linear/device/weight_steps.cuh"
#include "braid/kernels/cuda/ptx/once.h"

namespace braid::cuda {

constexpr int kConsumers = 32 * kSkinnyWarps;
// Warps that fill the ring: a copy costs some 50 cycles to issue, a stage some hundreds to start.
constexpr int kProducers = 4;
constexpr int kSkinnyThreads = kConsumers + 32 * kProducers;
static_assert(kProducers <= kSkinnyMinStages);

// The rows and the slice of K of a CTA, and the order of its stages.
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

// A place in the ring, and the parity of its current use.
struct SkinnyPlace {
  int stage;
  uint32_t parity;
  __device__ void advance(int by, int stages) {
    for (stage += by; stage >= stages; stage -= stages) parity ^= 1;
  }
};

// Part and column of a row of a tile; part -1 past the end.
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

// Where the CTA's slice of a tile's row begins; null past the end.
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
  uint64_t* received;  // [warps], parts of a tile from the other CTAs of the cluster
  uint64_t* consumed;  // [warps], all CTAs have summed theirs
  __device__ SkinnyBarriers(const SkinnyArgs& args, uint8_t* smem) {
    full = reinterpret_cast<uint64_t*>(smem + args.smem.barriers);
    empty = full + args.stages;
    received = empty + args.stages;
    consumed = received + kSkinnyWarps;
  }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// A stage's rows, one for each lane: where it is and what a copy of it takes.
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

// The warps that fill the ring. Where all warps share a stage they take the stages in turns. Where
// a stage belongs to a warp, each of them serves two warps: whoever waits for a barrier must see
// all of its phases.
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
  SkinnyPlace place{0, 0};  // of a warp's own stages
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

// One stage by plain loads, for any alignment; the end of a float row is padded with zeros. Out of
// line: the loop over stages stays short.
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

// acc[16 rows, 8 kTiles tokens] += every step-th step of a stage from `first` on.
template <DType kType, int kTiles>
__device__ inline void skinny_multiply(const uint8_t* row0, const uint8_t* row1, int first,
                                       int step, int steps, const uint8_t* const (&x)[kTiles],
                                       int x_pitch, const float* const (&sums)[kTiles],
                                       int sums_pitch, float (&acc)[kTiles][4]) {
  using Step = WeightStep<kType>;
  constexpr int kGroups = Step::kGroups;
  const int t = threadIdx.x & 3;
#pragma unroll 2
  for (int s = first; s < steps; s += step) {
    float scale[2][kGroups + 1], zero[2][kGroups + 1];
    const uint4 w0 = Step::load(row0, s, t, scale[0], zero[0]);
    const uint4 w1 = Step::load(row1, s, t, scale[1], zero[1]);
    const uint32_t a[2][4] = {{w0.x, w1.x, w0.y, w1.y}, {w0.z, w1.z, w0.w, w1.w}};
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const uint4 b = *reinterpret_cast<const uint4*>(x[j] + s * x_pitch);
      if constexpr (kGroups == 0) {
        ptx::mma_16816<__nv_bfloat16>(acc[j], a[0], b.x, b.y);
        ptx::mma_16816<__nv_bfloat16>(acc[j], a[1], b.z, b.w);
      } else {
        float part[kGroups][4] = {};
        ptx::mma_16816<__nv_bfloat16>(part[0], a[0], b.x, b.y);
        ptx::mma_16816<__nv_bfloat16>(part[kGroups - 1], a[1], b.z, b.w);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const float2 sum =
              *reinterpret_cast<const float2*>(sums[j] + (s * kGroups + g) * sums_pitch);
          acc[j][0] += scale[0][g] * part[g][0] + zero[0][g] * sum.x;
          acc[j][1] += scale[0][g] * part[g][1] + zero[0][g] * sum.y;
          acc[j][2] += scale[1][g] * part[g][2] + zero[1][g] * sum.x;
          acc[j][3] += scale[1][g] * part[g][3] + zero[1][g] * sum.y;
        }
      }
    }
  }
}

__device__ inline float load_bias(const SkinnyPart& part, int column) {
  if (part.bias == nullptr) return 0;
  return load_float(part.bias, part.bias_dtype, column);
}

__device__ inline void store_y(const SkinnyPart& part, int64_t token, int column, float y) {
  const int64_t at = token * part.y_stride + column;
  if (part.y_dtype == DType::f32) {
    static_cast<float*>(part.y)[at] = y;
  } else {
    static_cast<__nv_bfloat16*>(part.y)[at] = __float2bfloat16_rn(y);
  }
}

__device__ inline float activate(bool gelu, float x) {
  if (!gelu) return x / (1 + expf(-x));
  const float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
  return .5f * x * (1 + tanhf(inner));
}

// Bias and residual of rows r and r + 8 of a tile for one token: loaded while the tile streams in.
__device__ inline float2 skinny_addends(const SkinnyArgs& args, const SkinnyWork& work, int tile,
                                        int r, int64_t token) {
  const auto load = [&](const SkinnyRow& row) {
    if (row.part < 0) return 0.f;
    float sum = load_bias(args.p.parts[row.part], row.column);
    if (args.p.residual != nullptr) {
      sum += __ldcg(args.p.residual + token * args.p.residual_stride + row.column);
    }
    return sum;
  };
  return {load({args, work, tile, r}), load({args, work, tile, r + 8})};
}

__device__ inline void skinny_finish(const SkinnyArgs& args, const SkinnyWork& work, int tile,
                                     int r, int64_t token, float2 y) {
  const SkinnyRow first(args, work, tile, r);
  if (first.part < 0) return;
  if (args.p.gated) {
    store_y(args.p.parts[0], token, first.column, activate(args.gelu, y.x) * y.y);
    return;
  }
  store_y(args.p.parts[first.part], token, first.column, y.x);
  const SkinnyRow second(args, work, tile, r + 8);
  if (second.part >= 0) store_y(args.p.parts[second.part], token, second.column, y.y);
}

__device__ inline float inverse_rms(const SkinnyArgs& args, const uint8_t* smem, int token) {
  if (!args.p.normed) return 1;
  const auto* squares = reinterpret_cast<const float*>(smem + args.smem.squares);
  float sum = 0;
  for (int w = 0; w < kSkinnyWarps; ++w) sum += squares[w * kSkinnyMaxTokens + token];
  return rsqrtf(sum / static_cast<float>(args.p.k) + args.p.norm.eps);
}

__device__ inline void skinny_scale_and_store(const SkinnyArgs& args, const SkinnyWork& work,
                                              const uint8_t* smem, int tile, int r, int token,
                                              float2 y, float2 addends) {
  const float scale = inverse_rms(args, smem, token);
  y.x = y.x * scale + addends.x;
  y.y = y.y * scale + addends.y;
  skinny_finish(args, work, tile, r, args.row_begin + token, y);
}

// Adds up a tile over the same warp of the cluster's CTAs, in their order. CTA c gets the sums of
// the tokens in [c, c + 1) * share; those of the others in `acc` are of no use afterwards.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <int kTiles>
__device__ inline void skinny_exchange(const SkinnyArgs& args, uint8_t* smem,
                                       const SkinnyBarriers& barriers, int use,
                                       float (&acc)[kTiles][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int share = 8 * kTiles / args.cluster;
  const int rank = blockIdx.x % args.cluster;
  uint64_t* received = barriers.received + warp;
  uint64_t* consumed = barriers.consumed + warp;
  // [cluster, share, 8] of this warp
  auto* slots = reinterpret_cast<float2*>(smem + args.smem.exchange) + warp * 64 * kTiles;
  if (lane == 0) ptx::mbarrier_arrive_expect(received, (args.cluster - 1) * share * 64);
  if (use > 0) ptx::mbarrier_wait_cluster(consumed, (use - 1) & 1);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int token = 8 * j + 2 * t + h, owner = token / share;
      if (owner == rank) continue;
      ptx::store_async_f32x2(
          ptx::cluster_address(slots + (rank * share + token % share) * 8 + g, owner), acc[j][h],
          acc[j][2 + h], ptx::cluster_address(received, owner));
    }
  }
  ptx::mbarrier_wait_cluster(received, use & 1);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int token = 8 * j + 2 * t + h;
      if (token / share != rank) continue;
      float2 sum{0, 0};
      for (int c = 0; c < args.cluster; ++c) {
        const float2 part = c == rank ? float2{acc[j][h], acc[j][2 + h]}
                                      : slots[(c * share + token % share) * 8 + g];
        sum.x += part.x;
        sum.y += part.y;
      }
      acc[j][h] = sum.x;
      acc[j][2 + h] = sum.y;
    }
  }
  __syncwarp();
  if (lane < args.cluster) ptx::mbarrier_arrive_remote(ptx::cluster_address(consumed, lane));
}
#endif

// The warps split K: adds up their parts of a tile, in their order.
template <int kTiles>
__device__ inline void skinny_join(const SkinnyArgs& args, const SkinnyWork& work, uint8_t* smem,
                                   int tile, int live, float2 addends,
                                   const float (&acc)[kTiles][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  // Two buffers: a warp may be one tile ahead of the others.
  auto* partials = reinterpret_cast<float2*>(smem + args.smem.partials) +
                   (tile & 1) * kSkinnyWarps * 64 * kTiles;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    float2* to = partials + (warp * kTiles + j) * 64 + 16 * t + g;
    to[0] = {acc[j][0], acc[j][2]};
    to[8] = {acc[j][1], acc[j][3]};
  }
  ptx::named_barrier_sync(1, kConsumers);
  const int pair = threadIdx.x, token = pair >> 3;  // (token, row)
  if (token >= min(args.tokens, live)) return;
  float2 y{0, 0};
#pragma unroll
  for (int w = 0; w < kSkinnyWarps; ++w) {
    const float2 part = partials[w * 64 * kTiles + pair];
    y.x += part.x;
    y.y += part.y;
  }
  skinny_scale_and_store(args, work, smem, tile, pair & 7, token, y, addends);
}

// Each warp has tiles of its own.
template <int kTiles>
__device__ inline void skinny_store_own(const SkinnyArgs& args, const SkinnyWork& work,
                                        const uint8_t* smem, int tile, int live,
                                        const float (&acc)[kTiles][4]) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int share = 8 * kTiles / args.cluster, rank = blockIdx.x % args.cluster;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int token = 8 * j + 2 * t + h;
      if (token >= min(args.tokens, live) || token / share != rank) continue;
      const float2 addends = skinny_addends(args, work, tile, g, args.row_begin + token);
      skinny_scale_and_store(args, work, smem, tile, g, token, {acc[j][h], acc[j][2 + h]}, addends);
    }
  }
}

template <DType kType, int kTiles>
__global__ void __launch_bounds__(kSkinnyThreads, 2)
    skinny_kernel(const __grid_constant__ SkinnyArgs args) {
  using Step = WeightStep<kType>;
  extern __shared__ __align__(128) uint8_t smem[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const SkinnyWork work(args);
  const SkinnyBarriers barriers(args, smem);
  ptx::grid_launch_dependents();
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (args.bulk) {
    for (int i = threadIdx.x; i < args.stages; i += kSkinnyThreads) {
      ptx::mbarrier_init(&barriers.full[i], 1);
      ptx::mbarrier_init(&barriers.empty[i], args.split_k ? kSkinnyWarps : 1);
    }
    if (threadIdx.x < kSkinnyWarps) {
      ptx::mbarrier_init(&barriers.received[threadIdx.x], 1);
      ptx::mbarrier_init(&barriers.consumed[threadIdx.x], args.cluster);
    }
    ptx::fence_barrier_init();
    __syncthreads();
    if (args.cluster > 1) ptx::cluster_arrive();  // others may use the barriers
    if (warp >= kSkinnyWarps) {
      skinny_produce<kType>(args, work, smem, barriers);
      if (args.cluster > 1) {
        ptx::cluster_wait();
        ptx::cluster_arrive();
        ptx::cluster_wait();
      }
      return;
    }
  }
#endif
  if (warp >= kSkinnyWarps) return;
  ptx::grid_dependency_wait();
  const int64_t* rows = args.p.rows;
  const int live =
      static_cast<int>(rows == nullptr ? args.p.m : *static_cast<const volatile int64_t*>(rows)) -
      args.row_begin;
  stage_input<Step::kGroups, Step::kSplit>(args, work.k_begin, work.k_size, live, smem);
  ptx::named_barrier_sync(1, kConsumers);

  const int g = lane >> 2, t = lane & 3;
  const int x_pitch = args.tokens * 64;
  const int sums_pitch = (args.tokens + 1) / 2 * 2;
  const uint8_t* x[kTiles];
  const float* sums[kTiles];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    // What columns past the end hold is not read.
    x[j] = smem + args.smem.x + (min(8 * j + g, args.tokens - 1) * 4 + t) * 16;
    sums[j] =
        reinterpret_cast<const float*>(smem + args.smem.sums) + min(8 * j + 2 * t, sums_pitch - 2);
  }
  const int first_step = args.split_k ? warp : 0, step = args.split_k ? kSkinnyWarps : 1;
  const int first_tile = args.split_k ? 0 : warp, tile_step = args.split_k ? 1 : kSkinnyWarps;
  const int depth = args.split_k ? args.stages : args.stages / kSkinnyWarps;
  SkinnyPlace place{0, 0};  // of all stages, or of the warp's own
  [[maybe_unused]] int use = 0;
  for (int tile = first_tile; tile < work.num_tiles; tile += tile_step, ++use) {
    uint32_t shift[2] = {0, 0};  // of the rows' starts in shared memory
    if (args.bulk && !args.aligned) {
      shift[0] = low_bits(skinny_row<kType>(args, work, tile, g));
      shift[1] = low_bits(skinny_row<kType>(args, work, tile, g + 8));
    }
    float2 addends{0, 0};
    if (args.split_k && threadIdx.x < 8 * args.tokens) {
      addends = skinny_addends(args, work, tile, threadIdx.x & 7,
                               args.row_begin + static_cast<int>(threadIdx.x >> 3));
    }
    float acc[kTiles][4] = {};
    for (int chunk = 0; chunk < work.num_chunks; ++chunk) {
      const int k = chunk * args.chunk;
      const int stage = args.split_k ? place.stage : place.stage * kSkinnyWarps + warp;
      if (args.bulk) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        ptx::mbarrier_wait(&barriers.full[stage], place.parity);
#endif
      } else {
        ptx::named_barrier_sync(1, kConsumers);
        skinny_copy<kType>(args, work, tile, chunk, smem);
        ptx::named_barrier_sync(1, kConsumers);
      }
      const uint8_t* row0 = smem + (stage * kSkinnyTileRows + g) * args.smem.pitch;
      const uint8_t* row1 = row0 + 8 * args.smem.pitch;
      if (args.bulk && !args.aligned) {
        const auto offset = static_cast<uint32_t>(skinny_bytes<kType>(k));
        row0 += (shift[0] + offset) & 15;
        row1 += (shift[1] + offset) & 15;
      }
      const uint8_t* x_chunk[kTiles];
      const float* sums_chunk[kTiles];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        x_chunk[j] = x[j] + k / 32 * x_pitch;
        sums_chunk[j] = sums[j] + k / 32 * Step::kGroups * sums_pitch;
      }
      skinny_multiply<kType, kTiles>(row0, row1, first_step, step,
                                     (min(args.chunk, work.k_size - k) + 31) / 32, x_chunk, x_pitch,
                                     sums_chunk, sums_pitch, acc);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
      if (args.bulk) {
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(&barriers.empty[stage]);
        place.advance(1, depth);
      }
#endif
    }
    if (args.split_k) {
      skinny_join<kTiles>(args, work, smem, tile, live, addends, acc);
    } else {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
      if (args.cluster > 1) {
        if (use == 0) ptx::cluster_wait();  // the others are there, with their barriers
        skinny_exchange<kTiles>(args, smem, barriers, use, acc);
      }
#endif
      skinny_store_own<kTiles>(args, work, smem, tile, live, acc);
    }
  }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (args.cluster > 1) {
    if (use == 0) ptx::cluster_wait();
    ptx::cluster_arrive();
    ptx::cluster_wait();  // others may still write here
  }
#endif
}

template <DType kType>
auto skinny_instance(int tokens) {
  const int tiles = skinny_token_tiles(tokens);
  return tiles == 1   ? skinny_kernel<kType, 1>
         : tiles == 2 ? skinny_kernel<kType, 2>
                      : skinny_kernel<kType, 4>;
}

template <DType kType>
void launch_skinny(const SkinnyArgs& args, int ctas, const LaunchContext& context) {
  cudaLaunchAttribute attributes[2];
  int count = 0;
  if (args.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = args.cluster;
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  if (context.pdl) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(kSkinnyThreads);
  config.dynamicSmemBytes = args.smem.total;
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check_cuda(cudaLaunchKernelEx(&config, skinny_instance<kType>(args.tokens), args),
             "skinny linear launch");
}

template <DType kType>
void allow_skinny_smem() {
  int device = 0, most = 0;
  check_cuda(cudaGetDevice(&device), "device");
  check_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "shared memory limit");
  for (int tokens : {8, 16, 32}) {
    auto* kernel = skinny_instance<kType>(tokens);
    allow_shared_memory(kernel, most);
    // A launch shares an SM with the one before only where both want the same split of L1.
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared),
               "shared memory carveout");
  }
}

}  // namespace braid::cuda
