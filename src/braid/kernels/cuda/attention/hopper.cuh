#pragma once

#include "braid/kernels/cuda/attention/epilogue.cuh"
#include "braid/kernels/cuda/attention/hopper_launch.h"
#include "braid/kernels/cuda/attention/softmax.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/tma.h"
#include "braid/kernels/cuda/ptx/wgmma.h"

// Segment attention on Hopper's own units; docs/kernels.md draws the pipeline. One producer warp
// walks work items and key tiles and feeds shared memory by bulk tensor copies; consumer
// warpgroups of 64 rows each multiply with wgmma and take turns at the tensor cores.
namespace braid::cuda {

template <class T_, int kDqk_, int kDv_, int kConsumers_, int kBlockN_, int kKvStages_,
          int kQStages_, int kCtasPerSm_, int kCluster_, bool kQInRegisters_>
struct HopperTraits {
  using T = T_;
  static constexpr int kDqk = kDqk_;
  static constexpr int kDv = kDv_;
  static constexpr int kConsumers = kConsumers_;
  static constexpr int kBlockN = kBlockN_;
  static constexpr int kKvStages = kKvStages_;
  static constexpr int kQStages = kQStages_;
  static constexpr int kCtasPerSm = kCtasPerSm_;
  static constexpr int kCluster = kCluster_;  // CTAs that share key tiles by multicast: 1 or 2
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 24;
  static constexpr int kConsumerRegisters = kConsumers == 3                      ? 160
                                            : kConsumers == 1 && kCtasPerSm == 2 ? 232
                                                                                 : 240;
  static constexpr bool kQInRegisters = kQInRegisters_;
  static constexpr bool kTakeTurns = kConsumers > 1;
  // Head dim 64: the row sums come out of the product with V, as columns of ones beside it; they
  // are the sums of the rounded probabilities. It saves the additions where instructions bound.
  static constexpr bool kOnes = kDv == 64;
  static constexpr int kOutN = kDv + (kOnes ? 8 : 0);

  // Rows are cut into chunks of 64 elements = 128 bytes, the width of the swizzle; the last chunk
  // of head dim 96 is half zeros.
  static constexpr int kChunksQk = (kDqk + 63) / 64;
  static constexpr int kChunksV = (kDv + 63) / 64;
  static constexpr int kQChunkBytes = 64 * 128;
  static constexpr int kQBytes = kChunksQk * kQChunkBytes;  // of one warpgroup
  static constexpr int kKvChunkBytes = kBlockN * 128;
  static constexpr int kKBytes = kChunksQk * kKvChunkBytes;
  static constexpr int kVBytes = kChunksV * kKvChunkBytes;
};

// What consumers need to know of a key tile.
struct KeyTileInfo {
  int position;  // of column 0
  int valid;     // keys that the segment has from column 0 on
  int masked;
  int unused;
};

template <class Traits>
struct HopperSmem {
  static constexpr int kWorkSlots = 2;
  alignas(1024) uint8_t q[Traits::kQStages][Traits::kConsumers][Traits::kQBytes];
  alignas(1024) uint8_t k[Traits::kKvStages][Traits::kKBytes];
  alignas(1024) uint8_t v[Traits::kKvStages][Traits::kVBytes];
  alignas(1024) uint8_t ones[Traits::kOnes ? 2048 : 16];
  KeyTileInfo tile[Traits::kKvStages];
  WorkItem work[kWorkSlots];
  uint64_t q_full[Traits::kQStages][Traits::kConsumers];
  uint64_t q_empty[Traits::kQStages][Traits::kConsumers];
  uint64_t k_full[Traits::kKvStages];
  uint64_t k_empty[Traits::kKvStages];
  uint64_t v_full[Traits::kKvStages];
  uint64_t v_empty[Traits::kKvStages];
  uint64_t work_full[kWorkSlots];
  uint64_t work_empty[kWorkSlots];
  uint64_t scrub;
};

// Position in a ring of `kSlots`, with the parity that mbarrier_wait takes.
template <int kSlots>
struct Ring {
  int slot = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

template <class Traits>
class HopperProducer {
 public:
  __device__ HopperProducer(const HopperParams& p, HopperSmem<Traits>& smem)
      : p_(p),
        smem_(smem),
        lane_(threadIdx.x % 32),
        rank_(Traits::kCluster > 1 ? ptx::cluster_rank() : 0) {}

  __device__ void run() {
    const AttentionPlan& plan = p_.plan;
    int index = blockIdx.x / Traits::kCluster;
    while (index < plan.num_items) {
      // Asked for now, needed when this item's copies have been issued. The CTAs of a cluster walk
      // the same items, so these are dealt out in turn.
      int next = index + gridDim.x / Traits::kCluster;
      if (Traits::kCluster == 1 && lane_ == 0) {
        next = atomicAdd(&p_.counters[0], 1) + gridDim.x;
      }
      WorkItem item = decode_item(plan, index);
      if (item.token < item.length) {
        item.num_tiles = count_key_tiles(plan, item, Traits::kBlockN);
        if (item.num_tiles > 0) {
          publish(item);
          load_item(item);
        } else {
          for (int row = lane_; row < 64 * Traits::kConsumers; row += 32) {
            write_empty_row<typename Traits::T, Traits::kDv>(
                plan, item, item.token + (rank_ * Traits::kConsumers + row / 64) * plan.unit_tokens,
                row % 64);
          }
        }
      }
      index = __shfl_sync(0xffffffff, next, 0);
    }
    WorkItem end{};
    end.num_tiles = -1;
    publish(end);
    // The last CTA to get here leaves the counters as it found them: at zero.
    if (Traits::kCluster == 1 && lane_ == 0) {
      __threadfence();
      if (atomicAdd(&p_.counters[1], 1) == static_cast<int>(gridDim.x) - 1) {
        p_.counters[0] = 0;
        p_.counters[1] = 0;
      }
    }
  }

 private:
  __device__ void publish(const WorkItem& item) {
    ptx::mbarrier_wait(&smem_.work_empty[work_.slot], work_.parity ^ 1);
    if (lane_ == 0) {
      smem_.work[work_.slot] = item;
      ptx::mbarrier_arrive(&smem_.work_full[work_.slot]);
    }
    work_.next();
  }

  __device__ void load_item(const WorkItem& item) {
    const AttentionPlan& plan = p_.plan;
    const QSegment& q = plan.q[item.segment];
    bool first = true;
    int v_segment = 0, v_key = 0, v_length = 0;
    for (int j = q.kv_begin; j < q.kv_end; ++j) {
      const KeyTiles tiles = key_tiles(plan, item, j, Traits::kBlockN);
      for (int tile = tiles.begin; tile < tiles.end; ++tile) {
        const int key = tile * Traits::kBlockN;
        load_k(item, j, key, tiles.length);
        if (first) {
          load_q(item);
        } else {
          load_v(item, v_segment, v_key, v_length);
        }
        first = false;
        v_segment = j;
        v_key = key;
        v_length = tiles.length;
      }
    }
    load_v(item, v_segment, v_key, v_length);
  }

  __device__ void load_q(const WorkItem& item) {
    const AttentionPlan& plan = p_.plan;
    const QSegment& q = plan.q[item.segment];
    const int head = plan.pack == 1 ? item.head : item.head / plan.pack;
    const int b = q.starts ? 0 : item.b;
    for (int w = 0; w < Traits::kConsumers; ++w) {
      ptx::mbarrier_wait(&smem_.q_empty[q_.slot][w], q_.parity ^ 1);
      uint64_t* full = &smem_.q_full[q_.slot][w];
      if (lane_ == 0) {
        ptx::mbarrier_arrive_expect(full, Traits::kChunksQk * plan.unit_tokens * plan.pack * 128);
        for (int c = 0; c < Traits::kChunksQk; ++c) {
          ptx::tma_load_5d(
              smem_.q[q_.slot][w] + c * Traits::kQChunkBytes, &p_.q_map[item.segment], full, c * 64,
              0, item.row + item.token + (rank_ * Traits::kConsumers + w) * plan.unit_tokens, head,
              b);
        }
      }
    }
    __syncwarp();
    q_.next();
  }

  // Rows of a box: a whole tile, or what of it lies in one page.
  template <int kChunks>
  __device__ void load_rows(const WorkItem& item, int segment, int key, int length,
                            const CUtensorMap* map, uint8_t* smem, uint64_t* barrier) {
    const AttentionPlan& plan = p_.plan;
    const int head = item.head / plan.group;
    if (Traits::kCluster > 1) {
      // Each CTA brings its share of the rows to all.
      constexpr int kRows = Traits::kBlockN / Traits::kCluster;
      if (lane_ < kChunks) {
        ptx::tma_multicast_4d(smem + lane_ * Traits::kKvChunkBytes + rank_ * kRows * 128, map,
                              barrier, lane_ * 64, key + rank_ * kRows, head, item.b,
                              (1 << Traits::kCluster) - 1);
      }
      return;
    }
    if (plan.page_size == 0) {
      if (lane_ < kChunks) {
        ptx::tma_load_4d(smem + lane_ * Traits::kKvChunkBytes, map, barrier, lane_ * 64, key, head,
                         item.b);
      }
      return;
    }
    const KvSegment& s = plan.kv[segment];
    const int box = p_.kv_box_rows;
    for (int i = lane_; i < Traits::kBlockN / box * kChunks; i += 32) {
      const int c = i % kChunks;
      const int r = i / kChunks * box;
      const int t = key + r;
      const int in_page = t % plan.page_size;
      // Past the end: a page that does not exist, so that zeros arrive.
      const int page =
          t < length ? s.page_table[int64_t{item.b} * s.page_table_stride + t / plan.page_size]
                     : s.num_pages;
      ptx::tma_load_4d(smem + c * Traits::kKvChunkBytes + r * 128, map, barrier, c * 64, in_page,
                       head, page);
    }
  }

  __device__ void load_k(const WorkItem& item, int segment, int key, int length) {
    ptx::mbarrier_wait(&smem_.k_empty[k_.slot], k_.parity ^ 1);
    uint64_t* full = &smem_.k_full[k_.slot];
    if (lane_ == 0) {
      const KvSegment& s = p_.plan.kv[segment];
      smem_.tile[k_.slot] = {s.offset + key, length - key,
                             needs_mask(p_.plan, item, s.offset, key, length, Traits::kBlockN), 0};
      ptx::mbarrier_arrive_expect(full, Traits::kKBytes);
    }
    __syncwarp();
    load_rows<Traits::kChunksQk>(item, segment, key, length, &p_.k_map[segment], smem_.k[k_.slot],
                                 full);
    k_.next();
  }

  __device__ void load_v(const WorkItem& item, int segment, int key, int length) {
    ptx::mbarrier_wait(&smem_.v_empty[v_.slot], v_.parity ^ 1);
    uint64_t* full = &smem_.v_full[v_.slot];
    uint8_t* smem = smem_.v[v_.slot];
    // Rows past the end multiply a zero, and must not be NaN: where the copy engine does not know
    // the end, this warp writes the zeros before the consumers hear of the tile.
    const bool scrub = length - key < Traits::kBlockN &&
                       (p_.plan.page_size > 0 || p_.plan.kv[segment].lengths != nullptr);
    uint64_t* barrier = scrub ? &smem_.scrub : full;
    if (lane_ == 0) ptx::mbarrier_arrive_expect(barrier, Traits::kVBytes);
    __syncwarp();
    load_rows<Traits::kChunksV>(item, segment, key, length, &p_.v_map[segment], smem, barrier);
    if (scrub) {
      ptx::mbarrier_wait(&smem_.scrub, scrub_parity_);
      scrub_parity_ ^= 1;
      const int begin = (length - key) * 128;
      for (int c = 0; c < Traits::kChunksV; ++c) {
        for (int i = begin + lane_ * 16; i < Traits::kKvChunkBytes; i += 32 * 16) {
          *reinterpret_cast<uint4*>(smem + c * Traits::kKvChunkBytes + i) = make_uint4(0, 0, 0, 0);
        }
      }
      ptx::fence_proxy_async();
      __syncwarp();
      if (lane_ == 0) ptx::mbarrier_arrive(full);
    }
    v_.next();
  }

  const HopperParams& p_;
  HopperSmem<Traits>& smem_;
  const int lane_;
  const int rank_;
  Ring<HopperSmem<Traits>::kWorkSlots> work_;
  Ring<Traits::kQStages> q_;
  Ring<Traits::kKvStages> k_;
  Ring<Traits::kKvStages> v_;
  uint32_t scrub_parity_ = 0;
};

// s = q k^T for 64 rows, asynchronously.
template <class Traits>
__device__ __forceinline__ void issue_scores(float (&s)[Traits::kBlockN / 2], uint32_t q,
                                             uint32_t k) {
  ptx::wgmma_fence();
#pragma unroll
  for (int kk = 0; kk < Traits::kDqk / 16; ++kk) {
    const int q_at = kk / 4 * Traits::kQChunkBytes + kk % 4 * 32;
    const int k_at = kk / 4 * Traits::kKvChunkBytes + kk % 4 * 32;
    ptx::Wgmma<typename Traits::T, Traits::kBlockN>::ss(s, q + q_at / 16, k + k_at / 16, kk > 0);
  }
  ptx::wgmma_commit();
}

// The same with the queries in registers.
template <class Traits>
__device__ __forceinline__ void issue_scores_rk(float (&s)[Traits::kBlockN / 2],
                                                const uint32_t (&q)[Traits::kDqk / 4], uint32_t k) {
  ptx::wgmma_fence();
#pragma unroll
  for (int kk = 0; kk < Traits::kDqk / 16; ++kk) {
    const int k_at = kk / 4 * Traits::kKvChunkBytes + kk % 4 * 32;
    ptx::Wgmma<typename Traits::T, Traits::kBlockN>::rk(s, q + 4 * kk, k + k_at / 16, kk > 0);
  }
  ptx::wgmma_commit();
}

// o += p v, asynchronously. `v_step` advances the descriptor by 16 keys.
template <class Traits>
__device__ __forceinline__ void issue_values(float (&o)[Traits::kOutN / 2],
                                             const uint32_t (&p)[Traits::kBlockN / 4], uint32_t v,
                                             uint32_t v_step) {
  ptx::wgmma_fence();
#pragma unroll
  for (int kk = 0; kk < Traits::kBlockN / 16; ++kk) {
    ptx::Wgmma<typename Traits::T, Traits::kOutN>::rs(o, p + 4 * kk, v + kk * v_step, 1);
  }
  ptx::wgmma_commit();
}

template <class Traits>
class HopperConsumer {
  using T = typename Traits::T;
  static constexpr int kBlockN = Traits::kBlockN;

 public:
  __device__ __forceinline__ HopperConsumer(const HopperParams& p, HopperSmem<Traits>& smem, int wg)
      : plan_(p.plan),
        smem_(smem),
        wg_(wg),
        unit_((Traits::kCluster > 1 ? ptx::cluster_rank() * Traits::kConsumers : 0) + wg),
        warp_(threadIdx.x / 32 % 4),
        lane_(threadIdx.x % 32),
        scale_log2_(p.plan.scale * kLog2E),
        k_base_(ptx::wgmma_descriptor(smem.k[0], 0)),
        v_base_(ptx::wgmma_descriptor(
            smem.v[0], Traits::kOnes ? smem.ones - smem.v[0] : Traits::kKvChunkBytes)),
        q_base_(ptx::wgmma_descriptor(smem.q[0][wg], 0)) {}

  __device__ __forceinline__ void run() {
    if (Traits::kTakeTurns && wg_ == Traits::kConsumers - 1) {
      ptx::named_barrier_arrive(next_turn(), 256);
    }
    float s[kBlockN / 2];
    if (wait_item() < 0) return;
    start_item(s);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(s);
    while (true) {
      float o[Traits::kOutN / 2];
#pragma unroll
      for (float& x : o) x = 0.f;
      RowStats stats;
      stats.clear();
      attend(s, o, stats);
      const int slot = work_.slot;
      work_.next();
      if (wait_item() < 0) {
        finish(slot, o, stats);
        return;
      }
      start_item(s);  // its first product runs behind this item's last
      finish(slot, o, stats);
    }
  }

 private:
  // An item is read where it lies and released when it is finished: registers are short.
  __device__ __forceinline__ int wait_item() {
    ptx::mbarrier_wait(&smem_.work_full[work_.slot], work_.parity);
    return broadcast(lane_ == 0 ? smem_.work[work_.slot].num_tiles : 0);
  }

  // What the producer writes is read by the lane that will release it, for all.
  __device__ __forceinline__ int broadcast(int x) const {
    return __shfl_sync(0xffffffff, x, 0);
  }

  __device__ __forceinline__ WorkItem read_item(int slot) const {
    WorkItem item{};
    if (lane_ == 0) item = smem_.work[slot];
    item.segment = broadcast(item.segment);
    item.b = broadcast(item.b);
    item.head = broadcast(item.head);
    item.token = broadcast(item.token);
    item.length = broadcast(item.length);
    item.row = broadcast(item.row);
    item.position = broadcast(item.position);
    item.num_tiles = broadcast(item.num_tiles);
    return item;
  }

  // `masked` is known to all lanes, the rest to lane 0.
  __device__ __forceinline__ KeyTileInfo read_tile() const {
    KeyTileInfo info{};
    if (lane_ == 0) info = smem_.tile[k_.slot];
    info.masked = broadcast(info.masked);
    return info;
  }

  __device__ __forceinline__ void start_item(float (&s)[kBlockN / 2]) {
    ptx::mbarrier_wait(&smem_.q_full[q_.slot][wg_], q_.parity);
    if constexpr (Traits::kQInRegisters) {
      const uint8_t* base = smem_.q[q_.slot][wg_];
      const int row = warp_ * 16 + lane_ % 16;
#pragma unroll
      for (int kk = 0; kk < Traits::kDqk / 16; ++kk) {
        uint32_t r[4];
        ptx::ldmatrix_x4(r, base + kk / 4 * Traits::kQChunkBytes + row * 128 +
                                ((kk % 4 * 2 + lane_ / 16) ^ (row & 7)) * 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) q_fragments_[4 * kk + i] = r[i];
      }
      __syncwarp();
      if (lane_ == 0) ptx::mbarrier_arrive(&smem_.q_empty[q_.slot][wg_]);
      q_.next();
    }
    ptx::mbarrier_wait(&smem_.k_full[k_.slot], k_.parity);
    scores(s);
  }
  __device__ __forceinline__ void scores(float (&s)[kBlockN / 2]) {
    if constexpr (Traits::kQInRegisters) {
      issue_scores_rk<Traits>(s, q_fragments_, k_at());
    } else {
      issue_scores<Traits>(s, q_at(), k_at());
    }
  }

  // All of an item but the wait for its last product.
  __device__ __forceinline__ void attend(float (&s)[kBlockN / 2], float (&o)[Traits::kOutN / 2],
                                         RowStats& stats) {
    const WorkItem item = read_item(work_.slot);
    const int token = item.token + unit_ * plan_.unit_tokens;
    if (plan_.load_state) prefetch_state<Traits::kDv>(plan_, item, token, threadIdx.x % 128);
    const int num_tiles = item.num_tiles;
    const int row = warp_ * 16 + lane_ / 4;
    const int position0 = item.position + token + row / plan_.pack;
    const int position1 = item.position + token + (row + 8) / plan_.pack;
    uint32_t prob[kBlockN / 4];
    float alpha[2];
    const auto softmax = [&](KeyTileInfo info) {
      if (info.masked) {
        info.position = broadcast(info.position);
        info.valid = broadcast(info.valid);
        int low[2], high[2];
        visible(plan_, position0, info.position, info.valid, low[0], high[0]);
        visible(plan_, position1, info.position, info.valid, low[1], high[1]);
        mask_scores(s, low, high, lane_);
      }
      online_softmax<!Traits::kOnes>(s, stats, scale_log2_, alpha);
    };
    constexpr uint32_t kStep = 2048 / 16;
    const uint32_t v_step = Traits::kOnes ? kStep - (kStep << 16) : kStep;

    KeyTileInfo info = read_tile();
    release(smem_.k_empty, k_.slot);
    k_.next();
    softmax(info);
    pack_scores<T>(s, prob);
    for (int n = 1; n < num_tiles; ++n) {
      ptx::mbarrier_wait(&smem_.k_full[k_.slot], k_.parity);
      if (Traits::kTakeTurns) ptx::named_barrier_sync(turn(), 256);
      scores(s);
      ptx::mbarrier_wait(&smem_.v_full[v_.slot], v_.parity);
      issue_values<Traits>(o, prob, v_at(), v_step);
      if (Traits::kTakeTurns) ptx::named_barrier_arrive(next_turn(), 256);
      info = read_tile();
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(s);
      release(smem_.k_empty, k_.slot);
      k_.next();
      softmax(info);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(o);
      release(smem_.v_empty, v_.slot);
      v_.next();
      rescale(o, alpha);
      pack_scores<T>(s, prob);
    }
    if (!Traits::kQInRegisters) {
      __syncwarp();
      if (lane_ == 0) ptx::mbarrier_arrive(&smem_.q_empty[q_.slot][wg_]);
      q_.next();
    }
    ptx::mbarrier_wait(&smem_.v_full[v_.slot], v_.parity);
    issue_values<Traits>(o, prob, v_at(), v_step);
  }

  __device__ __forceinline__ void finish(int slot, float (&o)[Traits::kOutN / 2], RowStats& stats) {
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(o);
    release(smem_.v_empty, v_.slot);
    v_.next();
    float m2[2] = {stats.max[0] * scale_log2_, stats.max[1] * scale_log2_};
    if constexpr (Traits::kOnes) {
      const bool first = lane_ % 4 == 0;
      stats.sum[0] = first ? o[Traits::kDv / 2] : 0.f;
      stats.sum[1] = first ? o[Traits::kDv / 2 + 2] : 0.f;
    }
    const WorkItem item = read_item(slot);
    if (lane_ == 0) ptx::mbarrier_arrive(&smem_.work_empty[slot]);
    write_rows<T, Traits::kDv>(plan_, item, item.token + unit_ * plan_.unit_tokens, warp_, lane_, o,
                               stats.sum, m2);
  }

  // Every CTA that fills the slot hears of it.
  __device__ __forceinline__ void release(uint64_t (&barriers)[Traits::kKvStages], int slot) {
    __syncwarp();
    if constexpr (Traits::kCluster > 1) {
      if (lane_ < Traits::kCluster) ptx::mbarrier_arrive_cluster(&barriers[slot], lane_);
    } else {
      if (lane_ == 0) ptx::mbarrier_arrive(&barriers[slot]);
    }
  }

  __device__ int turn() const {
    return 1 + wg_;
  }
  __device__ int next_turn() const {
    return 1 + (wg_ + 1) % Traits::kConsumers;
  }
  __device__ uint32_t q_at() const {
    return q_base_ + q_.slot * (Traits::kConsumers * Traits::kQBytes / 16);
  }
  __device__ uint32_t k_at() const {
    return k_base_ + k_.slot * (Traits::kKBytes / 16);
  }
  __device__ uint32_t v_at() const {
    // With ones, the distance to them shrinks by what the start advances.
    constexpr uint32_t kStage = Traits::kVBytes / 16;
    return v_base_ + v_.slot * (Traits::kOnes ? kStage - (kStage << 16) : kStage);
  }

  const AttentionPlan& plan_;
  HopperSmem<Traits>& smem_;
  const int wg_;
  const int unit_;  // which 64 rows of the item are this warpgroup's
  const int warp_;
  const int lane_;
  const float scale_log2_;
  const uint32_t k_base_;
  const uint32_t v_base_;
  const uint32_t q_base_;
  Ring<HopperSmem<Traits>::kWorkSlots> work_;
  Ring<Traits::kQStages> q_;
  Ring<Traits::kKvStages> k_;
  Ring<Traits::kKvStages> v_;
  uint32_t q_fragments_[Traits::kQInRegisters ? Traits::kDqk / 4 : 1];
};

template <class Traits>
__global__ __launch_bounds__(Traits::kThreads, Traits::kCtasPerSm) void hopper_attention(
    const __grid_constant__ HopperParams p) {
  extern __shared__ __align__(1024) uint8_t smem_bytes[];
  auto& smem = *reinterpret_cast<HopperSmem<Traits>*>(smem_bytes);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    if (ptx::smem_address(smem_bytes) % 1024 != 0) __trap();
    constexpr int kWarps = 4 * Traits::kConsumers;
    constexpr int kReaders = kWarps * Traits::kCluster;
    for (int i = 0; i < Traits::kQStages; ++i) {
      for (int w = 0; w < Traits::kConsumers; ++w) {
        ptx::mbarrier_init(&smem.q_full[i][w], 1);
        ptx::mbarrier_init(&smem.q_empty[i][w], 4);
      }
    }
    for (int i = 0; i < Traits::kKvStages; ++i) {
      ptx::mbarrier_init(&smem.k_full[i], 1);
      ptx::mbarrier_init(&smem.k_empty[i], kReaders);
      ptx::mbarrier_init(&smem.v_full[i], 1);
      ptx::mbarrier_init(&smem.v_empty[i], kReaders);
    }
    for (int i = 0; i < HopperSmem<Traits>::kWorkSlots; ++i) {
      ptx::mbarrier_init(&smem.work_full[i], 1);
      ptx::mbarrier_init(&smem.work_empty[i], kWarps);
    }
    ptx::mbarrier_init(&smem.scrub, 1);
    ptx::fence_barrier_init();
  }
  if constexpr (Traits::kOnes) {
    const uint32_t one = ptx::pack<typename Traits::T>(1.f, 1.f);
    for (int i = threadIdx.x; i < 2048 / 4; i += Traits::kThreads) {
      reinterpret_cast<uint32_t*>(smem.ones)[i] = one;
    }
    ptx::fence_proxy_async();
  }
  if (Traits::kCluster > 1) {
    ptx::cluster_sync();
  } else {
    __syncthreads();
  }
  if (warp < 4) {
    ptx::set_max_registers_down<Traits::kProducerRegisters>();
    if (warp == 0) HopperProducer<Traits>(p, smem).run();
  } else {
    ptx::set_max_registers_up<Traits::kConsumerRegisters>();
    HopperConsumer<Traits>(p, smem, warp / 4 - 1).run();
  }
  // No CTA leaves while another may still write to it.
  if (Traits::kCluster > 1) ptx::cluster_sync();
}

template <class Traits>
void launch_hopper(const HopperParams& params, int num_sms, cudaStream_t stream) {
  constexpr int kBytes = sizeof(HopperSmem<Traits>);
  static_assert(kBytes <= 232448 / Traits::kCtasPerSm - (Traits::kCtasPerSm > 1 ? 1024 : 0));
  auto* kernel = hopper_attention<Traits>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "hopper attention: shared memory");
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {Traits::kCluster, 1, 1};
  cudaLaunchConfig_t launch{};
  launch.gridDim = Traits::kCluster *
                   min_i(params.plan.num_items, num_sms * Traits::kCtasPerSm / Traits::kCluster);
  launch.blockDim = Traits::kThreads;
  launch.dynamicSmemBytes = kBytes;
  launch.stream = stream;
  launch.attrs = &cluster;
  launch.numAttrs = Traits::kCluster > 1 ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&launch, kernel, params), "hopper attention: launch");
}

}  // namespace braid::cuda
