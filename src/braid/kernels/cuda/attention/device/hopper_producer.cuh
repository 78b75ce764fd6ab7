#pragma once

#include "braid/kernels/cuda/attention/device/epilogue.cuh"
#include "braid/kernels/cuda/attention/device/held_items.cuh"
#include "braid/kernels/cuda/attention/device/hopper_key_boxes.cuh"
#include "braid/kernels/cuda/attention/device/hopper_launch.h"
#include "braid/kernels/cuda/attention/device/hopper_smem.cuh"
#include "braid/kernels/cuda/attention/ragged_items.h"
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
        rank_(Traits::kCluster > 1 || Traits::kSplit ? ptx::cluster_rank() : 0),
        boxes_(p, lane_, rank_),
        held_(p, smem, lane_, rank_) {}

  __device__ void run() {
    const AttentionPlan& plan = p_.plan;
    // Looks items up during the previous grid, unless that grid writes the items' lengths.
    if (plan.device_lengths) ptx::grid_dependency_wait();
    int index = blockIdx.x / (Traits::kSplit ? ptx::cluster_size() : Traits::kCluster);
    WorkItem item = next_item(index);
    int num_tiles = item.any ? count_key_tiles(plan, item, Traits::kBlockN) : 0;
    ptx::grid_dependency_wait();
    if constexpr (Traits::kSplit) {
      work_on(item, num_tiles);
    } else if constexpr (Traits::kArrives) {
      held_.pick(true);
      while (held_.any()) {
        if (held_.picked()) {
          visit();
        } else {
          held_.pause();
          held_.pick(false);
        }
      }
    } else if constexpr (Traits::kLooksAhead) {
      next_ = {item, num_tiles, index};
      publish_next();
      while (next_.tiles >= 0) {
        const WorkItem now = next_.item;
        load_item(now, 0, next_.tiles);
      }
    } else {
      while (true) {
        // Needed when this item's copies have been issued; a cluster's CTAs take the same in turn.
        int next = index + gridDim.x / Traits::kCluster;
        if (Traits::kCluster == 1 && lane_ == 0) {
          next = atomicAdd(&p_.counters[0], 1) + gridDim.x;
        }
        work_on(item, num_tiles);
        index = __shfl_sync(0xffffffff, next, 0);
        if (index >= plan.num_items) break;
        item = next_item(index);
        if (!item.any && is_ragged(plan)) break;
        num_tiles = item.any ? count_key_tiles(plan, item, Traits::kBlockN) : 0;
      }
    }
    load_pending_v();
    if (!Traits::kLooksAhead) publish({}, -1);
    ptx::grid_launch_dependents();
    // The last CTA to arrive here resets the counters to zero.
    if (!Traits::kSplit && (Traits::kCluster == 1 || Traits::kArrives) && lane_ == 0) {
      __threadfence();
      if (atomicAdd(&p_.counters[1], 1) == static_cast<int>(gridDim.x) - 1) {
        p_.counters[0] = 0;
        p_.counters[1] = 0;
        if constexpr (Traits::kArrives) {
          p_.counters[2] = 0;
          held_.reset();
        }
      }
    }
  }

 private:
  // Split calls deal items out by CTA, and each CTA writes its own items.
  __device__ WorkItem next_item(int index) {
    return !Traits::kSplit && is_ragged(p_.plan) ? ragged_item(p_.plan, index, walk_)
                                                 : decode_item(p_.plan, index);
  }

  // Takes the picked item through the present stages.
  __device__ void visit() {
    const AttentionPlan& plan = p_.plan;
    const bool is_new = held_.is_new();
    int place;
    HeldItem now = held_.take(place);
    const WorkItem item = decode_item(plan, now.index);
    const QTensor& q = plan.q[plan.run_begin[item.run]];
    const int begin = is_new ? q.kv_begin : now.run;
    int left = q.kv_end;  // first visible run that has not arrived
    int tiles = 0;
    for (int run = begin; run < q.kv_end; ++run) {
      const KeyTiles seen = key_tiles(plan, item, run, Traits::kBlockN);
      if (seen.end == seen.begin) continue;
      now.last_stage = max_i(plan.kv_stage[run], q.stage);
      if (held_.arrived(now.last_stage)) {
        tiles += seen.end - seen.begin;
      } else if (left == q.kv_end) {
        left = run;
        now.stage = now.last_stage;
      }
    }
    const bool leaves = left < q.kv_end;
    const int resume = now.begun ? place : -1;
    const bool idle = leaves && tiles == 0;
    now.run = left;
    now.begun |= static_cast<int>(!idle);
    const int leave = leaves ? held_.put(now) : -1;
    if (idle) return held_.pick(true);
    publish(item, tiles, resume, leave);
    if (resume >= 0) prefetch_sums<Traits>(p_, resume, lane_);
    __syncwarp();
    load_item(item, 0, tiles, begin, left);
  }

  // While the item's keys are still wanted: the next item's copies then start at the end.
  __device__ void look_ahead() {
    advance();
    publish_next();
  }

  __device__ void advance() {
    static_assert(!Traits::kLooksAhead || Traits::kCluster == 1);
    if (lane_ == 0) next_.index = atomicAdd(&p_.counters[0], 1) + gridDim.x;
    next_.index = __shfl_sync(0xffffffff, next_.index, 0);
    next_.tiles = -1;
    if (next_.index >= p_.plan.num_items) return;
    next_.item = next_item(next_.index);
    if (!next_.item.any && is_ragged(p_.plan)) return;
    next_.tiles = next_.item.any ? count_key_tiles(p_.plan, next_.item, Traits::kBlockN) : 0;
  }

  __device__ void publish_next() {
    while (next_.tiles >= 0 && skips(p_.plan, next_.item, next_.tiles)) advance();
    publish(next_.item, next_.tiles);
  }

  __device__ void work_on(const WorkItem& item, int num_tiles) {
    const AttentionPlan& plan = p_.plan;
    if (!Traits::kSplit && skips(plan, item, num_tiles)) return;
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

  __device__ void publish(const WorkItem& item, int num_tiles, int resume = -1, int leave = -1) {
    ptx::mbarrier_wait(&smem_.work_empty[work_.slot], work_.parity ^ 1);
    if (lane_ == 0) {
      auto& slot = smem_.work[work_.slot];
      slot.num_tiles = num_tiles;
      slot.b = item.b;
      slot.head = item.head;
      if constexpr (Traits::kArrives) {
        slot.resume = resume;
        slot.leave = leave;
      }
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

  // The unit of this CTA's first consumer.
  __device__ ItemUnit first_unit(const WorkItem& item) const {
    return locate(p_.plan, item.run, item.b, item.unit + first_of_cta());
  }
  __device__ int first_of_cta() const {
    return Traits::kCluster > 1 ? rank_ * Traits::kConsumers : 0;
  }

  // With tiles of 64 keys this loop takes as long as the consumers' work: values common to all
  // tiles are computed before the loop.
  __device__ void load_item(const WorkItem& item, int begin, int end) {
    const QTensor& q = p_.plan.q[p_.plan.run_begin[item.run]];
    load_item(item, begin, end, q.kv_begin, q.kv_end);
  }
  __device__ void load_item(const WorkItem& item, int begin, int end, int run, int last_run) {
    const AttentionPlan& plan = p_.plan;
    const int head = divide(item.head, plan.by_group);  // KV head
    bool first = true;
    int issued = 0;  // tiles; the ring is full with two
    const int ahead_at = min_i(end - begin, 2);
    int before = 0;  // tiles of earlier runs
    for (; run < last_run && begin < end; ++run) {
      const KeyTiles tiles = key_tiles(plan, item, run, Traits::kBlockN);
      int segment = plan.kv_run_begin[run];
      int first_key = 0;  // the segment's first key, in the run
      const int run_end = plan.kv_run_begin[run + 1];
      // Begin of the next segment in the run.
      const auto end_of = [&](int s) { return s + 1 < run_end ? plan.kv_first[s + 1] : INT32_MAX; };
      int next_first = end_of(segment);
      const int position = plan.kv[segment].offset;
      const int from = tiles.begin + (Traits::kSplit ? max_i(0, begin - before) : 0);
      const int to = Traits::kSplit ? min_i(tiles.end, tiles.begin + end - before) : tiles.end;
      before += tiles.end - tiles.begin;
      int next_page = boxes_.page_of(item.b, segment, from * Traits::kBlockN, tiles.length);
      for (int tile = from; tile < to; ++tile) {
        const int key = tile * Traits::kBlockN;
        const int page = next_page;
        if (tile + 1 < to) {
          next_page = boxes_.page_of(item.b, segment, key + Traits::kBlockN, tiles.length);
        }
        while (key >= next_first) {
          first_key = next_first;
          next_first = end_of(++segment);
        }
        const bool shared = key + Traits::kBlockN > next_first;
        KeyTile of_k{segment,
                     shared ? run_end : 0,
                     key - first_key,
                     next_first - key,
                     tiles.length - key,
                     Traits::kBlockN,
                     page};
        if (shared) of_k.arriving = boxes_.arriving_rows(of_k);
        load_k(item, head, of_k, position + key);
        load_pending_v();
        pending_ = of_k;
        pending_b_ = item.b;
        pending_head_ = head;
        if (first) {
          load_q(item);
          if constexpr (Traits::kCarries) prefetch(item);
        }
        first = false;
        if (Traits::kLooksAhead && ++issued == ahead_at) look_ahead();
      }
    }
    if constexpr (Traits::kArrives) {
      held_.pick(true);
      first |= !held_.picked();
    }
    if (!first) return;  // the item's last values follow the next item's first keys
    load_pending_v();
    if constexpr (Traits::kCarries) prefetch(item);
    if constexpr (Traits::kLooksAhead) look_ahead();
  }

  __device__ void load_pending_v() {
    if (pending_.valid > 0) load_v(pending_, pending_b_, pending_head_);
    pending_.valid = 0;
  }

  // Brings an item's carried state to L2 during the end of the item before.
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

  __device__ void load_k(const WorkItem& item, int head, const KeyTile& tile, int position) {
    ptx::mbarrier_wait(&smem_.k_empty[k_.slot], k_.parity ^ 1);
    uint64_t* full = &smem_.k_full[k_.slot];
    if (lane_ == 0) {
      smem_.tile[k_.slot] = {position, tile.valid,
                             needs_mask(p_.plan, item, position, tile.valid, Traits::kBlockN), 0};
      ptx::mbarrier_arrive_expect(full, tile.arriving * Traits::kChunksQk * 128);
    }
    __syncwarp();
    boxes_.template load<Traits::kChunksQk>(item.b, head, tile, p_.k_map, smem_.k[k_.slot], full);
    k_.next();
  }

  __device__ void load_v(const KeyTile& tile, int b, int head) {
    ptx::mbarrier_wait(&smem_.v_empty[v_.slot], v_.parity ^ 1);
    uint64_t* full = &smem_.v_full[v_.slot];
    uint8_t* smem = smem_.v[v_.slot];
    // Rows past the end must not be NaN: if the copy engine knows no end, this warp zeroes.
    const bool scrub = tile.valid < Traits::kBlockN &&
                       (p_.plan.page_size > 0 || p_.plan.kv[tile.segment].lengths != nullptr);
    uint64_t* barrier = scrub ? &smem_.scrub : full;
    if (lane_ == 0) ptx::mbarrier_arrive_expect(barrier, tile.arriving * Traits::kChunksV * 128);
    __syncwarp();
    boxes_.template load<Traits::kChunksV>(b, head, tile, p_.v_map, smem, barrier);
    if (scrub) {
      ptx::mbarrier_wait(&smem_.scrub, scrub_parity_);
      scrub_parity_ ^= 1;
      for (int c = 0; c < Traits::kChunksV; ++c) {
        for (int i = tile.valid * 128 + lane_ * 16; i < Traits::kKvChunkBytes; i += 32 * 16) {
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
  KeyBoxes<Traits> boxes_;
  HeldItems<Traits> held_;
  Ring<HopperSmem<Traits>::kWorkSlots> work_;
  Ring<Traits::kQStages> q_;
  Ring<Traits::kKvStages> k_;
  Ring<Traits::kKvStages> v_;
  ItemWalk walk_;
  struct {
    WorkItem item;
    int tiles;  // key tiles; -1: no item
    int index;
  } next_{};  // for a producer that looks ahead
  uint32_t scrub_parity_ = 0;
  int published_ = 0;  // slot of the item at work
  KeyTile pending_{};  // keys are under way, values not yet; valid 0: none
  int pending_b_ = 0;
  int pending_head_ = 0;
};

}  // namespace braid::cuda
