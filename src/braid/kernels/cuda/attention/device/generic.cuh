#pragma once

#include "braid/kernels/cuda/attention/device/epilogue.cuh"
#include "braid/kernels/cuda/attention/device/generic_launch.h"
#include "braid/kernels/cuda/attention/device/softmax.cuh"

// Segment attention with mma.sync: 4 warps, each with 16 rows of every unit of 64 query rows; keys
// and values in two stages of shared memory filled by cp.async, rows padded by 16 bytes against
// bank conflicts. A CTA computes a single work item.
namespace braid::cuda {

constexpr int kGenericThreads = 128;

template <int kDqk>
constexpr int kGenericBlockN = kDqk <= 128 ? 64 : 32;

template <int kDqk, int kDv, int kBlockM>
constexpr int generic_smem_bytes() {
  return 2 * (kBlockM * (kDqk + 8) + 2 * kGenericBlockN<kDqk> * (kDqk + 8 + kDv + 8));
}

// Loads keys [key, key + kBlockN) of a head, zeros from `length` on.
template <class T, int kD, int kBlockN>
__device__ inline void load_keys(T* smem, const AttentionPlan& plan, const KvTensor& s,
                                 const void* data, const Strides& stride, int b, int head, int key,
                                 int length) {
  constexpr int kChunks = kD / 8;
#pragma unroll
  for (int i = threadIdx.x; i < kBlockN * kChunks; i += kGenericThreads) {
    const int r = i / kChunks;
    const int c = i % kChunks;
    const int t = key + r;
    const bool valid = t < length;
    int64_t at = 0;
    if (valid && plan.page_size == 0) {
      at = b * stride.batch + t * stride.token;
    } else if (valid) {
      const int page = s.page_table[int64_t{b} * s.page_table_stride + t / plan.page_size];
      at = page * stride.batch + t % plan.page_size * stride.token;
    }
    ptx::cp_async_16(smem + r * (kD + 8) + c * 8,
                     static_cast<const T*>(data) + at + head * stride.head + c * 8, valid);
  }
}

// Walks the key tiles of an item over all segments.
struct KeyCursor {
  int segment;
  int tile;
  KeyTiles tiles;
};

__device__ inline KeyCursor first_key_tile(const AttentionPlan& plan, const WorkItem& item,
                                           int block_n) {
  KeyCursor c;
  const QTensor& q = plan.q[plan.run_begin[item.run]];
  c.segment = q.kv_begin;
  c.tiles = key_tiles(plan, item, c.segment, block_n);
  c.tile = c.tiles.begin;
  const int end = q.kv_end;
  while (c.tile >= c.tiles.end && c.segment + 1 < end) {
    c.tiles = key_tiles(plan, item, ++c.segment, block_n);
    c.tile = c.tiles.begin;
  }
  return c;
}

__device__ inline void next_key_tile(const AttentionPlan& plan, const WorkItem& item, int block_n,
                                     KeyCursor& c) {
  const int end = plan.q[plan.run_begin[item.run]].kv_end;
  ++c.tile;
  while (c.tile >= c.tiles.end && c.segment + 1 < end) {
    c.tiles = key_tiles(plan, item, ++c.segment, block_n);
    c.tile = c.tiles.begin;
  }
}

template <class T, int kDqk, int kDv, int kBlockN>
__device__ inline void load_tile(T* k_smem, T* v_smem, const AttentionPlan& plan,
                                 const KeyCursor& c, int b, int head) {
  const KvTensor& s = plan.kv[c.segment];
  const int key = c.tile * kBlockN;
  load_keys<T, kDqk, kBlockN>(k_smem, plan, s, s.k, s.k_stride, b, head, key, c.tiles.length);
  load_keys<T, kDv, kBlockN>(v_smem, plan, s, s.v, s.v_stride, b, head, key, c.tiles.length);
}

template <class T, int kDqk, int kDv, int kBlockM>
__global__ __launch_bounds__(kGenericThreads) void generic_attention(
    const __grid_constant__ AttentionPlan plan) {
  constexpr int kBlockN = kGenericBlockN<kDqk>;
  constexpr int kUnits = kBlockM / 64;
  constexpr int kRowK = kDqk + 8;
  constexpr int kRowV = kDv + 8;
  extern __shared__ __align__(16) unsigned char smem[];
  T* q_smem = reinterpret_cast<T*>(smem);
  T* k_smem = q_smem + kBlockM * kRowK;
  T* v_smem = k_smem + 2 * kBlockN * kRowK;

  const WorkItem item = decode_item(plan, blockIdx.x);
  if (!item.any) return;
  const int num_tiles = count_key_tiles(plan, item, kBlockN);
  // A carried state without new keys stays unchanged.
  if (num_tiles == 0 && plan.load_state && !plan.finalize) return;
  ItemUnit unit[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) unit[u] = locate(plan, item.run, item.b, item.unit + u);
  const int kv_head = item.head / plan.group;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;

#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const QTensor& q = plan.q[unit[u].segment];
    for (int i = threadIdx.x; i < 64 * (kDqk / 8); i += kGenericThreads) {
      const int r = i / (kDqk / 8);
      const int c = i % (kDqk / 8);
      const int in_unit = r * plan.pack_inverse >> 16;
      const int token = unit[u].token + in_unit;
      const bool valid = in_unit < plan.unit_tokens && token < unit[u].length;
      const int64_t at = valid ? (q.starts ? 0 : item.b) * q.q_stride.batch +
                                     int64_t{unit[u].row + token} * q.q_stride.token +
                                     (item.head + r - in_unit * plan.pack) * q.q_stride.head
                               : 0;
      ptx::cp_async_16(q_smem + (u * 64 + r) * kRowK + c * 8,
                       static_cast<const T*>(q.q) + at + c * 8, valid);
    }
  }

  KeyCursor load{};
  if (num_tiles > 0) {
    load = first_key_tile(plan, item, kBlockN);
    load_tile<T, kDqk, kDv, kBlockN>(k_smem, v_smem, plan, load, item.b, kv_head);
  }
  ptx::cp_async_commit();

  float o[kUnits][kDv / 2];
  RowStats stats[kUnits];
  const float scale_log2 = plan.scale * ptx::kLog2E;
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    if (plan.load_state) {
      const CarriedRows rows = find_state(plan, unit[u], item.b, item.head, warp, lane, scale_log2);
      load_state<kDv>(plan, rows, lane % 4, o[u]);
      stats[u].take(rows.max, rows.l);
      const bool empty[2] = {stats[u].max[0] == -INFINITY, stats[u].max[1] == -INFINITY};
      const float keep[2] = {1.f, 1.f};
      settle_state<kDv>(plan, lane, o[u], keep, empty);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (empty[r]) stats[u].sum[r] = 0.f;
      }
    } else {
#pragma unroll
      for (float& x : o[u]) x = 0.f;
      stats[u].clear();
    }
  }
  const int row0 = warp * 16 + lane / 4;
  KeyCursor at = load;

  for (int n = 0; n < num_tiles; ++n) {
    const int stage = n % 2;
    if (n + 1 < num_tiles) {
      next_key_tile(plan, item, kBlockN, load);
      load_tile<T, kDqk, kDv, kBlockN>(k_smem + (stage ^ 1) * kBlockN * kRowK,
                                       v_smem + (stage ^ 1) * kBlockN * kRowV, plan, load, item.b,
                                       kv_head);
    }
    ptx::cp_async_commit();
    ptx::cp_async_wait<1>();
    __syncthreads();

    const T* k_stage = k_smem + stage * kBlockN * kRowK;
    const T* v_stage = v_smem + stage * kBlockN * kRowV;
    float s[kUnits][kBlockN / 2];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (float& x : s[u]) x = 0.f;
    }
#pragma unroll
    for (int kk = 0; kk < kDqk / 16; ++kk) {
      uint32_t a[kUnits][4];
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        ptx::ldmatrix_x4(
            a[u], q_smem + (u * 64 + warp * 16 + lane % 16) * kRowK + kk * 16 + lane / 16 * 8);
      }
#pragma unroll
      for (int nn = 0; nn < kBlockN / 16; ++nn) {
        uint32_t b[4];
        ptx::ldmatrix_x4(
            b, k_stage + (nn * 16 + lane / 16 * 8 + lane % 8) * kRowK + kk * 16 + lane / 8 % 2 * 8);
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
          ptx::mma_16816<T>(s[u] + nn * 8, a[u], b[0], b[1]);
          ptx::mma_16816<T>(s[u] + nn * 8 + 4, a[u], b[2], b[3]);
        }
      }
    }

    const KvTensor& segment = plan.kv[at.segment];
    const int key = at.tile * kBlockN;
    const bool masked =
        needs_mask(plan, item, segment.offset + key, at.tiles.length - key, kBlockN);
    uint32_t p[kUnits][kBlockN / 4];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (masked) {
        int low[2], high[2];
        const int position = unit[u].position + unit[u].token;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          visible(plan, position + ((row0 + 8 * r) * plan.pack_inverse >> 16), segment.offset + key,
                  at.tiles.length - key, low[r], high[r]);
        }
        mask_scores(s[u], low, high, lane);
      }
      float alpha[2];
      online_softmax<true>(s[u], stats[u], scale_log2, alpha);
      pack_scores<T>(s[u], p[u]);
      rescale(o[u], alpha);
    }
#pragma unroll
    for (int kk = 0; kk < kBlockN / 16; ++kk) {
#pragma unroll
      for (int nn = 0; nn < kDv / 16; ++nn) {
        uint32_t b[4];
        ptx::ldmatrix_x4_trans(b,
                               v_stage + (kk * 16 + lane % 16) * kRowV + nn * 16 + lane / 16 * 8);
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
          ptx::mma_16816<T>(o[u] + nn * 8, p[u] + kk * 4, b[0], b[1]);
          ptx::mma_16816<T>(o[u] + nn * 8 + 4, p[u] + kk * 4, b[2], b[3]);
        }
      }
    }
    if (n + 1 < num_tiles) next_key_tile(plan, item, kBlockN, at);
    __syncthreads();
  }

#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    float m2[2] = {stats[u].max[0] * scale_log2, stats[u].max[1] * scale_log2};
    write_rows<T, kDv, true>(plan, unit[u], item.b, item.head, warp, lane, o[u], stats[u].sum, m2);
  }
}

template <DType kDType, int kDqk, int kDv, int kBlockM>
void launch_generic(const AttentionPlan& plan, cudaStream_t stream) {
  constexpr int kBytes = generic_smem_bytes<kDqk, kDv, kBlockM>();
  auto* kernel = generic_attention<DeviceType<kDType>, kDqk, kDv, kBlockM>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "generic attention: shared memory");
  kernel<<<plan.num_items, kGenericThreads, kBytes, stream>>>(plan);
  check_cuda(cudaGetLastError(), "generic attention: launch");
}

}  // namespace braid::cuda
