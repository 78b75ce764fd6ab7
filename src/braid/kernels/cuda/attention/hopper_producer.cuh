#pragma once

#include "braid/kernels/cuda/attention/epilogue.cuh"
#include "braid/kernels/cuda/attention/hopper_launch.h"
#include "braid/kernels/cuda/attention/hopper_smem.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/cluster.h"
#include "braid/kernels/cuda/ptx/tma.h"

// The warp that walks work items and key tiles and feeds shared memory by bulk tensor copies.
namespace braid::cuda {

template <class Traits>
class HopperProducer {
 public:
  __device__ HopperProducer(const HopperParams& p, HopperSmem<Traits>& smem)
      : p_(p),
        smem_(smem),
        lane_(threadIdx.x % 32),
        rank_(Traits::kCluster > 1 || Traits::kSplit ? ptx::cluster_rank() : 0) {}

  __device__ void run() {
    const AttentionPlan& plan = p_.plan;
    // The first item is looked up while the grid before this one still runs, unless it wrote what
    // the item depends on.
    if (plan.device_lengths) ptx::grid_dependency_wait();
    int index = blockIdx.x / (Traits::kSplit ? ptx::cluster_size() : Traits::kCluster);
    WorkItem item = decode_item(plan, index);
    int num_tiles = item.any ? count_key_tiles(plan, item, Traits::kBlockN) : 0;
    ptx::grid_dependency_wait();
    if constexpr (Traits::kSplit) {
      work_on(item, num_tiles);
    } else {
      while (true) {
        // Asked for now, needed when this item's copies have been issued. The CTAs of a cluster
        // walk the same items, so these are dealt out in turn.
        int next = index + gridDim.x / Traits::kCluster;
        if (Traits::kCluster == 1 && lane_ == 0) {
          next = atomicAdd(&p_.counters[0], 1) + gridDim.x;
        }
        work_on(item, num_tiles);
        index = __shfl_sync(0xffffffff, next, 0);
        if (index >= plan.num_items) break;
        item = decode_item(plan, index);
        num_tiles = item.any ? count_key_tiles(plan, item, Traits::kBlockN) : 0;
      }
    }
    publish({}, -1);
    ptx::grid_launch_dependents();
    // The last CTA to get here leaves the counters as it found them: at zero.
    if (!Traits::kSplit && Traits::kCluster == 1 && lane_ == 0) {
      __threadfence();
      if (atomicAdd(&p_.counters[1], 1) == static_cast<int>(gridDim.x) - 1) {
        p_.counters[0] = 0;
        p_.counters[1] = 0;
      }
    }
  }

 private:
  __device__ void work_on(const WorkItem& item, int num_tiles) {
    const AttentionPlan& plan = p_.plan;
    if (!Traits::kSplit && !item.any) return;
    // A carried state that sees no new key stays as it is.
    if (!Traits::kSplit && num_tiles == 0 && plan.load_state && !plan.finalize) return;
    int begin = 0;
    int end = num_tiles;
    if constexpr (Traits::kSplit) {
      const int size = static_cast<int>(ptx::cluster_size());
      begin = num_tiles * rank_ / size;
      end = num_tiles * (rank_ + 1) / size;
    }
    publish(item, end - begin);
    load_item(item, begin, end);
  }

  __device__ void publish(const WorkItem& item, int num_tiles) {
    ptx::mbarrier_wait(&smem_.work_empty[work_.slot], work_.parity ^ 1);
    if (lane_ == 0) {
      auto& slot = smem_.work[work_.slot];
      slot.num_tiles = num_tiles;
      slot.b = item.b;
      slot.head = item.head;
      if (num_tiles >= 0) {
        ItemUnit u = first_unit(item);
        for (int w = 0; w < Traits::kConsumers; ++w) {
          slot.unit[w] = u;
          u = next_unit(p_.plan, item.run, u);
        }
      }
      ptx::mbarrier_arrive(&smem_.work_full[work_.slot]);
    }
    __syncwarp();
    published_ = work_.slot;
    work_.next();
  }

  // What the first consumer of this CTA works on.
  __device__ ItemUnit first_unit(const WorkItem& item) const {
    const int skip = Traits::kCluster > 1 ? rank_ * Traits::kConsumers : 0;
    return locate(p_.plan, item.run, item.b, item.unit + skip);
  }

  __device__ void load_item(const WorkItem& item, int begin, int end) {
    const AttentionPlan& plan = p_.plan;
    const QSegment& q = plan.q[plan.run_begin[item.run]];
    bool first = true;
    int v_segment = 0, v_key = 0, v_length = 0;
    int before = 0;  // tiles of the segments before
    for (int j = q.kv_begin; j < q.kv_end && begin < end; ++j) {
      const KeyTiles tiles = key_tiles(plan, item, j, Traits::kBlockN);
      const int from = tiles.begin + (Traits::kSplit ? max_i(0, begin - before) : 0);
      const int to = Traits::kSplit ? min_i(tiles.end, tiles.begin + end - before) : tiles.end;
      before += tiles.end - tiles.begin;
      for (int tile = from; tile < to; ++tile) {
        const int key = tile * Traits::kBlockN;
        load_k(item, j, key, tiles.length);
        if (first) {
          load_q(item);
          prefetch(item);
        } else {
          load_v(item, v_segment, v_key, v_length);
        }
        first = false;
        v_segment = j;
        v_key = key;
        v_length = tiles.length;
      }
    }
    if (first) {
      prefetch(item);
    } else {
      load_v(item, v_segment, v_key, v_length);
    }
  }

  // What the item carries is on its way to L2 while the one before it ends.
  __device__ void prefetch(const WorkItem& item) const {
    if (!p_.plan.load_state || (Traits::kSplit && rank_ > 0)) return;
    for (int row = lane_; row < 64 * Traits::kConsumers; row += 32) {
      prefetch_state<Traits::kDv>(p_.plan, smem_.work[published_].unit[row / 64], item.b, item.head,
                                  row % 64);
    }
  }

  __device__ void load_q(const WorkItem& item) {
    const AttentionPlan& plan = p_.plan;
    const int head = plan.pack == 1 ? item.head : item.head / plan.pack;
    for (int w = 0; w < Traits::kConsumers; ++w) {
      ptx::mbarrier_wait(&smem_.q_empty[q_.slot][w], q_.parity ^ 1);
      uint64_t* full = &smem_.q_full[q_.slot][w];
      if (lane_ == 0) {
        const ItemUnit u = smem_.work[published_].unit[w];
        const int b = plan.q[u.segment].starts ? 0 : item.b;
        ptx::mbarrier_arrive_expect(full, Traits::kChunksQk * plan.unit_tokens * plan.pack * 128);
        for (int c = 0; c < Traits::kChunksQk; ++c) {
          ptx::tma_load_5d(smem_.q[q_.slot][w] + c * Traits::kQChunkBytes, &p_.q_map[u.segment],
                           full, c * 64, 0, u.row + u.token, head, b);
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
  int published_ = 0;  // the slot of the item at work
};

}  // namespace braid::cuda
