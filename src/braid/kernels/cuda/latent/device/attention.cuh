#pragma once

#include "braid/kernels/cuda/latent/device/latent_args.h"
#include "braid/kernels/cuda/latent/device/turn.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/mma.h"

namespace braid::cuda {

constexpr int kLatentWarps = 8;
constexpr int kLatentThreads = 32 * kLatentWarps;
constexpr unsigned kWholeWarp = 0xffffffffu;

template <int kRows>
struct LatentTile {
  static constexpr int kKeys = latent_keys(kRows);
  static constexpr int kScorePitch = kKeys + 1;
  static constexpr int kProbPitch = kKeys + 8;
};

// The rows and keys of a CTA.
struct LatentWork {
  int sequence = -1;
  int first = 0, count = 0;  // rows of the sequence
  int token = 0;             // the sequence's first, as the batch counts
  int queries = 0, length = 0;
  int key_begin = 0, key_end = 0;

  // A warp finds the sequence of a block; within a sequence the last rows come first.
  __device__ void find(const LatentParams& p, int block, int rows) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int live = p.sequences
                         ? static_cast<int>(__ldcg(reinterpret_cast<const long long*>(p.sequences)))
                         : p.max_sequences;
    int before = 0;
    for (int base = 0; base < live && sequence < 0; base += 32) {
      const int s = base + lane;
      const int begin = s < live ? __ldcg(p.q_start + s) : 0;
      const int own = s < live ? __ldcg(p.q_start + s + 1) - begin : 0;
      const int blocks = (own * p.heads + rows - 1) / rows;
      int sum = blocks;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(kWholeWarp, sum, step);
        if (lane >= step) sum += other;
      }
      const unsigned has = __ballot_sync(kWholeWarp, before + sum > block);
      if (has != 0) {
        const int who = __ffs(static_cast<int>(has)) - 1;
        const int local = block - before - __shfl_sync(kWholeWarp, sum - blocks, who);
        const int count = __shfl_sync(kWholeWarp, blocks, who);
        token = __shfl_sync(kWholeWarp, begin, who);
        queries = __shfl_sync(kWholeWarp, own, who);
        sequence = base + who;
        first = (count - 1 - local) * rows;  // rows with the most keys first
      }
      before += __shfl_sync(kWholeWarp, sum, 31);
    }
    if (sequence < 0) return;
    count = min(rows, queries * p.heads - first);
    length = __ldcg(p.kv_len + sequence);
  }

  // The last key of a row.
  __device__ int last_key(int row, int heads) const {
    return length - queries + (first + row) / heads;
  }
};

// Keys [key, key + kKeys) of the sequence to shared memory, zeros behind the last key. Copies of a
// bf16 cache are under way on return.
template <class C, int kRows>
__device__ inline void load_keys(const LatentParams& p, const LatentWork& work, int key,
                                 __nv_bfloat16* to, int pitch) {
  constexpr int kKeys = latent_keys(kRows);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & 31;
  const int width = p.latent + p.rope;
  const int32_t* pages = p.page_table + static_cast<int64_t>(work.sequence) * p.table_stride;
#pragma unroll 2
  for (int i = warp; i < kKeys; i += kLatentWarps) {
    const int j = key + i;
    const bool there = j < work.key_end;
    const int page = there ? __ldcg(pages + j / p.page_size) : 0;
    const C* from = static_cast<const C*>(p.cache) +
                    (static_cast<int64_t>(page) * p.page_size + j % p.page_size) * width;
    for (int v = lane; v < width / 8; v += 32) {
      if constexpr (sizeof(C) == 2 && !std::is_same_v<C, __half>) {
        ptx::cp_async_16(to + i * pitch + 8 * v,
                         there ? static_cast<const void*>(from + 8 * v) : p.cache, there);
      } else {
        float x[8] = {};
        if (there) {
#pragma unroll
          for (int e = 0; e < 8; ++e) x[e] = widen(__ldcg(from + 8 * v + e));
        }
        store(to + i * pitch + 8 * v, x);
      }
    }
  }
  ptx::cp_async_commit();
}

// Queries of the block's rows: absorbed columns, then turned columns.
template <int kRows>
__device__ inline void load_queries(const LatentParams& p, const LatentWork& work,
                                    __nv_bfloat16* to, const LatentSmem& layout) {
  const int thread = static_cast<int>(threadIdx.x), pitch = layout.pitch;
  const int vectors = layout.width / 8, pairs = p.rope / 2;
  const int64_t first = static_cast<int64_t>(work.token - p.first_token) * p.heads + work.first;
  for (int i = thread; i < kRows * vectors; i += kLatentThreads) {
    const int row = i / vectors, v = i % vectors;
    const bool there = row < work.count && 8 * v < p.latent;
    const auto* from = static_cast<const __nv_bfloat16*>(p.absorbed) + (first + row) * p.latent;
    const uint4 x = there ? __ldcg(reinterpret_cast<const uint4*>(from) + v) : uint4{};
    if (8 * v < p.latent || 8 * v >= p.latent + p.rope || row >= work.count) {
      *reinterpret_cast<uint4*>(to + row * pitch + 8 * v) = x;
    }
  }
  for (int i = thread; i < work.count * pairs; i += kLatentThreads) {
    const int row = i / pairs;
    const int64_t at = first + row;  // token and head
    const auto* q = static_cast<const __nv_bfloat16*>(p.q) + at * (p.nope + p.rope) + p.nope;
    const Turn turn(
        i % pairs, p.rope, p.interleaved,
        __ldcg(p.positions + (work.token - p.first_token) + (work.first + row) / p.heads), p.turns,
        p.rope_factor);
    const float2 y = turn.of(widen(__ldcg(q + turn.first)), widen(__ldcg(q + turn.second)));
    to[row * pitch + p.latent + turn.first] = __float2bfloat16_rn(y.x);
    to[row * pitch + p.latent + turn.second] = __float2bfloat16_rn(y.y);
  }
}

// Scores to shared memory: a warp has a tile of 16 rows and some tiles of 8 keys.
template <int kRows>
__device__ inline void score(const __nv_bfloat16* queries, const __nv_bfloat16* keys, int pitch,
                             int steps, float* scores) {
  using Smem = LatentTile<kRows>;
  constexpr int kTiles = kRows / 16, kOthers = kLatentWarps / kTiles;
  constexpr int kEach = Smem::kKeys / 8 / kOthers;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & 31;
  const int row = warp % kTiles * 16, key = warp / kTiles * kEach * 8;
  const __nv_bfloat16* a = queries + (row + (lane & 15)) * pitch + (lane >> 4) * 8;
  const __nv_bfloat16* b = keys + (key + (lane & 7)) * pitch + (lane >> 3) * 8;
  float acc[kEach][4] = {};
#pragma unroll 2
  for (int step = 0; step < steps; ++step) {
    uint32_t q[2][4];
    ptx::ldmatrix_x4(q[0], a + 32 * step);
    ptx::ldmatrix_x4(q[1], a + 32 * step + 16);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      uint32_t k[4];
      ptx::ldmatrix_x4(k, b + 8 * j * pitch + 32 * step);
      ptx::mma_16816<__nv_bfloat16>(acc[j], q[0], k[0], k[1]);
      ptx::mma_16816<__nv_bfloat16>(acc[j], q[1], k[2], k[3]);
    }
  }
  float* to = scores + (row + (lane >> 2)) * Smem::kScorePitch + key + 2 * (lane & 3);
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      to[8 * (e / 2) * Smem::kScorePitch + 8 * j + e % 2] = acc[j][e];
    }
  }
}

// Each row's state: the largest score so far, the sum of probabilities, and the factor for earlier
// sums at this step.
struct RowStates {
  float *top, *sum, *keep;
};

// Probabilities from the scores; each row ends at its own last key.
template <int kRows>
__device__ inline void to_probabilities(const LatentParams& p, const LatentWork& work, int key,
                                        const float* scores, __nv_bfloat16* probs,
                                        const RowStates& state) {
  using Smem = LatentTile<kRows>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & 31;
  const float scale = p.scale * ptx::kLog2E;
  for (int row = warp; row < kRows; row += kLatentWarps) {
    const int end = row < work.count ? min(work.key_end, work.last_key(row, p.heads) + 1) : 0;
    float s[2], top = -INFINITY;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int j = lane + 32 * i;
      const bool seen = j < Smem::kKeys && key + j < end;
      s[i] = seen ? scores[row * Smem::kScorePitch + j] * scale : -INFINITY;
      top = fmaxf(top, s[i]);
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      top = fmaxf(top, __shfl_xor_sync(kWholeWarp, top, mask));
    }
    const float before = state.top[row];
    top = fmaxf(top, before);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int j = lane + 32 * i;
      const float x = s[i] == -INFINITY ? 0 : exp2f(s[i] - top);
      const __nv_bfloat16 rounded = __float2bfloat16_rn(x);
      if (j < Smem::kKeys) probs[row * Smem::kProbPitch + j] = rounded;
      sum += __bfloat162float(rounded);  // as they are multiplied
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, mask);
    __syncwarp();
    if (lane == 0) {
      const float keep = before == -INFINITY ? 0 : exp2f(before - top);
      state.top[row] = top;
      state.sum[row] = state.sum[row] * keep + sum;
      state.keep[row] = keep;
    }
  }
}

// A warp has groups of 16 columns in the sums, for all rows.
constexpr int kColumnGroups = kMaxLatent / 16 / kLatentWarps;
template <int kRows>
using Sums = float[kRows / 16][kColumnGroups][2][4];

template <int kRows>
__device__ inline void add_latents(const __nv_bfloat16* probs, const __nv_bfloat16* keys, int pitch,
                                   int groups, const float* keep, Sums<kRows>& acc) {
  using Smem = LatentTile<kRows>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int m = 0; m < kRows / 16; ++m) {
    const float low = keep[16 * m + (lane >> 2)], high = keep[16 * m + 8 + (lane >> 2)];
#pragma unroll
    for (int i = 0; i < kColumnGroups; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) acc[m][i][e / 4][e % 4] *= e % 4 < 2 ? low : high;
    }
  }
#pragma unroll
  for (int k = 0; k < Smem::kKeys / 16; ++k) {
    uint32_t p[kRows / 16][4];
#pragma unroll
    for (int m = 0; m < kRows / 16; ++m) {
      ptx::ldmatrix_x4(
          p[m], probs + (16 * m + (lane & 15)) * Smem::kProbPitch + 16 * k + (lane >> 4) * 8);
    }
#pragma unroll
    for (int i = 0; i < kColumnGroups; ++i) {
      const int group = warp + kLatentWarps * i;
      if (group >= groups) break;
      uint32_t v[4];
      ptx::ldmatrix_x4_trans(v,
                             keys + (16 * k + (lane & 15)) * pitch + 16 * group + (lane >> 4) * 8);
#pragma unroll
      for (int m = 0; m < kRows / 16; ++m) {
        ptx::mma_16816<__nv_bfloat16>(acc[m][i][0], p[m], v[0], v[1]);
        ptx::mma_16816<__nv_bfloat16>(acc[m][i][1], p[m], v[2], v[3]);
      }
    }
  }
}

// Stores the block's results, or the share's part for the merge.
template <int kRows>
__device__ inline void store_sums(const LatentArgs& a, const LatentWork& work, int share,
                                  const RowStates& state, const Sums<kRows>& acc) {
  const LatentParams& p = a.p;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t all = static_cast<int64_t>(p.tokens) * p.heads;
  const int64_t first = static_cast<int64_t>(work.token - p.first_token) * p.heads + work.first;
  float* partial = a.shares > 1 ? p.partial + (share * all + first) * p.latent : nullptr;
#pragma unroll
  for (int m = 0; m < kRows / 16; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * m + 8 * half + (lane >> 2);
      if (row >= work.count) continue;
      const float factor = a.shares > 1 ? 1 : 1 / state.sum[row];
#pragma unroll
      for (int i = 0; i < kColumnGroups; ++i) {
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
          const int column = 16 * (warp + kLatentWarps * i) + 8 * tile + 2 * (lane & 3);
          if (column >= p.latent) continue;
          const float x = acc[m][i][tile][2 * half] * factor;
          const float y = acc[m][i][tile][2 * half + 1] * factor;
          if (partial) {
            *reinterpret_cast<float2*>(partial + static_cast<int64_t>(row) * p.latent + column) = {
                x, y};
          } else {
            auto* out = static_cast<__nv_bfloat16*>(p.out) + (first + row) * p.latent + column;
            *reinterpret_cast<uint32_t*>(out) = ptx::pack<__nv_bfloat16>(x, y);
          }
        }
      }
    }
  }
  if (!partial) return;
  float2* states = reinterpret_cast<float2*>(p.partial + a.shares * all * p.latent);
  for (int row = static_cast<int>(threadIdx.x); row < work.count; row += kLatentThreads) {
    states[share * all + first + row] = {state.top[row], state.sum[row]};
  }
}

template <class C, int kRows>
__global__ void __launch_bounds__(kLatentThreads, 1)
    latent_kernel(const __grid_constant__ LatentArgs a) {
  using Smem = LatentTile<kRows>;
  constexpr int kKeys = Smem::kKeys;
  extern __shared__ __align__(128) uint8_t smem[];
  __shared__ LatentWork shared_work;
  const LatentParams& p = a.p;
  const LatentSmem layout = latent_smem(kRows, p.latent, p.rope);
  const int pitch = layout.pitch, thread = static_cast<int>(threadIdx.x);
  auto* queries = reinterpret_cast<__nv_bfloat16*>(smem);
  auto* keys = reinterpret_cast<__nv_bfloat16*>(smem + layout.keys);
  auto* scores = reinterpret_cast<float*>(smem + layout.scores);
  auto* probs = reinterpret_cast<__nv_bfloat16*>(smem + layout.probs);
  auto* rows = reinterpret_cast<float*>(smem + layout.states);
  const RowStates state{rows, rows + kRows, rows + 2 * kRows};
  const int share = static_cast<int>(blockIdx.x) % a.shares;
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  if (thread < 32) {
    LatentWork work;
    work.find(p, static_cast<int>(blockIdx.x) / a.shares, kRows);
    if (thread == 0) shared_work = work;
  }
  // Columns behind a key's last one.
  const int width = p.latent + p.rope, padding = layout.width - width;
  for (int i = thread; i < 2 * kKeys * padding; i += kLatentThreads) {
    keys[i / padding * pitch + width + i % padding] = __float2bfloat16_rn(0);
  }
  for (int i = thread; i < kRows; i += kLatentThreads) {
    state.top[i] = -INFINITY;
    state.sum[i] = 0;
  }
  __syncthreads();
  LatentWork work = shared_work;
  if (work.sequence < 0) return;
  // The keys of the block's last row, in whole steps for each share.
  const int steps_of_all = (work.last_key(work.count - 1, p.heads) + kKeys) / kKeys;
  const int each = (steps_of_all + a.shares - 1) / a.shares;
  work.key_begin = share * each * kKeys;
  work.key_end = min((share + 1) * each * kKeys, work.last_key(work.count - 1, p.heads) + 1);
  const int steps = max(0, (work.key_end - work.key_begin + kKeys - 1) / kKeys);

  Sums<kRows> acc = {};
  if (steps > 0) load_keys<C, kRows>(p, work, work.key_begin, keys, pitch);
  if (steps > 0) load_queries<kRows>(p, work, queries, layout);
  const int groups = (p.latent + 15) / 16;
  for (int i = 0; i < steps; ++i) {
    const int key = work.key_begin + i * kKeys;
    __nv_bfloat16* now = keys + (i & 1) * kKeys * pitch;
    if (i + 1 < steps) {
      load_keys<C, kRows>(p, work, key + kKeys, keys + ((i + 1) & 1) * kKeys * pitch, pitch);
      ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
    __syncthreads();
    score<kRows>(queries, now, pitch, layout.width / 32, scores);
    __syncthreads();
    to_probabilities<kRows>(p, work, key, scores, probs, state);
    __syncthreads();
    add_latents<kRows>(probs, now, pitch, groups, state.keep, acc);
    __syncthreads();  // the next keys take the same place
  }
  store_sums<kRows>(a, work, share, state, acc);
}

template <class C>
void launch_latent(const LatentArgs& args, const LatentConfig& config,
                   const LaunchContext& context) {
  const auto bytes =
      static_cast<size_t>(latent_smem(config.rows, args.p.latent, args.p.rope).total);
  const auto run = [&](auto* kernel) {
    launch_kernel(context, kernel, dim3(static_cast<unsigned>(args.blocks * args.shares)),
                  dim3(kLatentThreads), bytes, args);
  };
  if (config.rows == 16) return run(latent_kernel<C, 16>);
  config.rows == 32 ? run(latent_kernel<C, 32>) : run(latent_kernel<C, 64>);
}

template <class C>
void allow_latent_smem(size_t bytes) {
  allow_shared_memory(latent_kernel<C, 16>, bytes);
  allow_shared_memory(latent_kernel<C, 32>, bytes);
  allow_shared_memory(latent_kernel<C, 64>, bytes);
}

}  // namespace braid::cuda
