#pragma once

#include "braid/kernels/cuda/attention/device/epilogue.cuh"
#include "braid/kernels/cuda/attention/device/held_items.cuh"
#include "braid/kernels/cuda/attention/device/hopper_launch.h"
#include "braid/kernels/cuda/attention/device/hopper_products.cuh"
#include "braid/kernels/cuda/attention/device/hopper_smem.cuh"
#include "braid/kernels/cuda/attention/device/hopper_split.cuh"
#include "braid/kernels/cuda/attention/device/softmax.cuh"
#include "braid/kernels/cuda/attention/device/staged_sums.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/cluster.h"

// The multiplying warpgroups: each has 64 rows of an item and uses wgmma; warpgroups take turns at
// the tensor cores.
namespace braid::cuda {

template <class Traits>
class HopperConsumer {
  using T = typename Traits::T;
  static constexpr int kBlockN = Traits::kBlockN;

 public:
  __device__ __forceinline__ HopperConsumer(const HopperParams& p, HopperSmem<Traits>& smem, int wg)
      : p_(p),
        plan_(p.plan),
        smem_(smem),
        wg_(wg),
        warp_(threadIdx.x / 32 % 4),
        lane_(threadIdx.x % 32),
        scale_log2_(p.plan.scale * ptx::kLog2E),
        k_base_(ptx::wgmma_descriptor(smem.k[0], 0)),
        v_base_(ptx::wgmma_descriptor(
            smem.v[0], Traits::kOnes ? smem.ones - smem.v[0] : Traits::kKvChunkBytes)),
        q_base_(ptx::wgmma_descriptor(smem.q[0][wg], 0)) {}

  __device__ __forceinline__ void run() {
    if (Traits::kTakeTurns && wg_ == Traits::kConsumers - 1) {
      ptx::named_barrier_arrive(next_turn(), 256);
    }
    float s[kBlockN / 2];
    float o[Traits::kOutN / 2];
    RowStats stats;
    CarriedRows carried;
    uint32_t prob[kBlockN / 4];
    int num_tiles = wait_item();
    int done = -1;  // slot of an item with rows still in registers
    while (true) {
      // Handles items without keys, and the end of an item without a direct successor.
      while (true) {
        finish(done, o, stats);
        if (num_tiles != 0) break;
        find_carried(carried);
        begin_item(o, stats, carried);
        const bool empty[2] = {stats.max[0] == -INFINITY, stats.max[1] == -INFINITY};
        const float keep[2] = {1.f, 1.f};
        clear_empty(stats, empty);
        if (carries()) settle_state<Traits::kDv>(plan_, lane_, o, keep, empty);
        done = work_.slot;
        work_.next();
        num_tiles = wait_item();
      }
      if (num_tiles < 0) return;
      find_carried(carried);
      start_item(s);
      uint32_t v;
      while (true) {
        attend(s, o, stats, carried, prob, num_tiles);
        done = work_.slot;
        work_.next();
        num_tiles = wait_item();
        v = operands().v;
        ptx::mbarrier_wait(&smem_.v_full[v_.slot], v_.parity);
        if (num_tiles <= 0) break;
        values(o, prob, v);
        start_item(s);  // the next item's first product runs behind this item's last
        find_carried(carried);
        ptx::wgmma_wait<1>();
        leave_item(o);
        finish(done, o, stats);
      }
      values(o, prob, v);
      ptx::wgmma_wait<0>();
      leave_item(o);
    }
  }

  // Second half of a split item: row parts merge, and each CTA writes a share of the rows.
  __device__ __forceinline__ void merge() {
    if constexpr (Traits::kSplit) merge_parts(plan_, smem_, read_item(0));
  }

 private:
  // An item is read in place and released at its end: registers are short.
  __device__ __forceinline__ int wait_item() {
    ptx::mbarrier_wait(&smem_.work_full[work_.slot], work_.parity);
    return broadcast(lane_ == 0 ? smem_.work[work_.slot].num_tiles : 0);
  }

  // The lane that releases the producer's data reads the data for all lanes.
  __device__ __forceinline__ int broadcast(int x) const { return __shfl_sync(0xffffffff, x, 0); }

  __device__ __forceinline__ ItemPlace read_item(int slot) const {
    ItemPlace item{};
    if (lane_ == 0) {
      item.b = smem_.work[slot].b;
      item.head = smem_.work[slot].head;
      item.unit = smem_.work[slot].unit[wg_];
    }
    item.b = broadcast(item.b);
    item.head = broadcast(item.head);
    item.unit.segment = broadcast(item.unit.segment);
    item.unit.token = broadcast(item.unit.token);
    item.unit.length = broadcast(item.unit.length);
    item.unit.row = broadcast(item.unit.row);
    item.unit.position = broadcast(item.unit.position);
    return item;
  }

  // `masked` is known to all lanes, the rest to lane 0.
  __device__ __forceinline__ KeyTileInfo read_tile() const {
    KeyTileInfo info{};
    if (lane_ == 0) info = smem_.tile[k_.slot];
    info.masked = __any_sync(0xffffffff, info.masked);
    return info;
  }

  // Descriptors of the next products' operands in shared memory. The compiler knows a reduction's
  // result as uniform, so descriptors live in uniform registers, as wgmma needs.
  struct Operands {
    uint32_t q, k, v;
  };
  __device__ __forceinline__ Operands operands() const {
    // With ones, the distance shrinks by the start's advance.
    constexpr uint32_t kStage = Traits::kVBytes / 16;
    return {
        __reduce_or_sync(0xffffffff,
                         q_base_ + q_.slot * (Traits::kConsumers * Traits::kQBytes / 16)),
        __reduce_or_sync(0xffffffff, k_base_ + k_.slot * (Traits::kKBytes / 16)),
        __reduce_or_sync(0xffffffff,
                         v_base_ + v_.slot * (Traits::kOnes ? kStage - (kStage << 16) : kStage))};
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
      release_q();
      q_.next();
    }
    const Operands at = operands();
    ptx::mbarrier_wait(&smem_.k_full[k_.slot], k_.parity);
    scores(s, at);
  }

  __device__ __forceinline__ void scores(float (&s)[kBlockN / 2], const Operands& at) {
    if constexpr (Traits::kQInRegisters) {
      issue_scores_rk<Traits>(s, q_fragments_, at.k);
    } else {
      issue_scores<Traits>(s, at.q, at.k);
    }
  }

  // Whether sums continue from a carried state. In a split item, a single part has the state; in a
  // staged item, the state joins at the end.
  __device__ __forceinline__ bool carries() const {
    return Traits::kCarries && plan_.load_state && !(Traits::kSplit && ptx::cluster_rank() > 0);
  }

  __device__ __forceinline__ void find_carried(CarriedRows& rows) const {
    if (!carries()) return;
    const ItemPlace item = read_item(work_.slot);
    rows = find_state(plan_, item.unit, item.b, item.head, warp_, lane_, scale_log2_);
  }

  // Sums start at zero, or continue from left sums.
  __device__ __forceinline__ void begin_item(float (&o)[Traits::kOutN / 2], RowStats& stats,
                                             const CarriedRows& rows) {
    if (!carries()) {
      if (Traits::kArrives && goes_on_) return;
#pragma unroll
      for (float& x : o) x = 0.f;
      stats.clear();
      if constexpr (Traits::kArrives) {
        const int place = broadcast(lane_ == 0 ? smem_.work[work_.slot].resume : 0);
        if (place >= 0) {
          take_up<Traits>(p_, place, wg_, o, stats);
        }
      }
      return;
    }
    load_state<Traits::kDv>(plan_, rows, lane_ % 4, o);
    stats.take(rows.max, rows.l);
    if constexpr (Traits::kOnes) {
      o[Traits::kDv / 2] = rows.l[0];
      o[Traits::kDv / 2 + 1] = 0.f;
      o[Traits::kDv / 2 + 2] = rows.l[1];
      o[Traits::kDv / 2 + 3] = 0.f;
    }
  }

  // Rows without keys may hold any numbers.
  __device__ __forceinline__ static void clear_empty(RowStats& stats, const bool (&empty)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (empty[r]) stats.sum[r] = 0.f;
    }
  }

  __device__ __forceinline__ void release_q() {
    __syncwarp();
    if (lane_ == 0) ptx::mbarrier_arrive(&smem_.q_empty[q_.slot][wg_]);
  }

  // All of an item but the wait for the last product. The first scores are under way.
  __device__ __forceinline__ void attend(float (&s)[kBlockN / 2], float (&o)[Traits::kOutN / 2],
                                         RowStats& stats, const CarriedRows& carried,
                                         uint32_t (&prob)[kBlockN / 4], int num_tiles) {
    int position = 0;
    if (lane_ == 0) {
      const ItemUnit& unit = smem_.work[work_.slot].unit[wg_];
      position = unit.position + unit.token;
    }
    position = broadcast(position);
    const int row = warp_ * 16 + lane_ / 4;
    const int position0 = position + (row * plan_.pack_inverse >> 16);
    const int position1 = position + ((row + 8) * plan_.pack_inverse >> 16);
    float alpha[2];
    const auto softmax = [&](KeyTileInfo info) {
      if (info.masked) [[unlikely]] {
        info.position = broadcast(info.position);
        info.valid = broadcast(info.valid);
        int low[2], high[2];
        visible(plan_, position0, info.position, info.valid, low[0], high[0]);
        visible(plan_, position1, info.position, info.valid, low[1], high[1]);
        mask_scores(s, low, high, lane_);
      }
      online_softmax<!Traits::kOnes>(s, stats, scale_log2_, alpha);
    };
    KeyTileInfo info = read_tile();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(s);
    release(smem_.k_empty, k_.slot);
    k_.next();
    if (!Traits::kQInRegisters && num_tiles == 1) release_q();
    begin_item(o, stats, carried);
    const bool empty[2] = {stats.max[0] == -INFINITY, stats.max[1] == -INFINITY};
    if (carries()) clear_empty(stats, empty);
    softmax(info);
    if (carries()) settle_state<Traits::kDv>(plan_, lane_, o, alpha, empty);
    if constexpr (Traits::kArrives) rescale(o, alpha);
    ptx::wgmma_pin(o);  // fixes each in a register: otherwise copies land between products
    pack_scores<T>(s, prob);
    for (int n = 1; n < num_tiles; ++n) {
      const Operands at = operands();
      ptx::mbarrier_wait(&smem_.k_full[k_.slot], k_.parity);
      if (Traits::kTakeTurns) ptx::named_barrier_sync(turn(), 256);
      scores(s, at);
      ptx::mbarrier_wait(&smem_.v_full[v_.slot], v_.parity);
      values(o, prob, at.v);
      if (Traits::kTakeTurns) ptx::named_barrier_arrive(next_turn(), 256);
      info = read_tile();
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(s);
      release(smem_.k_empty, k_.slot);
      k_.next();
      if (!Traits::kQInRegisters && n + 1 == num_tiles) release_q();
      softmax(info);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(o);
      release(smem_.v_empty, v_.slot);
      v_.next();
      rescale(o, alpha);
      pack_scores<T>(s, prob);
    }
    if (!Traits::kQInRegisters) q_.next();
  }

  __device__ __forceinline__ void values(float (&o)[Traits::kOutN / 2],
                                         const uint32_t (&prob)[kBlockN / 4], uint32_t v) {
    constexpr uint32_t kStep = 2048 / 16;
    issue_values<Traits>(o, prob, v, Traits::kOnes ? kStep - (kStep << 16) : kStep);
  }

  __device__ __forceinline__ void leave_item(float (&o)[Traits::kOutN / 2]) {
    ptx::wgmma_pin(o);
    release(smem_.v_empty, v_.slot);
    v_.next();
  }

  // Writes the rows of the item in slot `done`, if any; with a next visit to the same item, the
  // sums stay.
  __device__ __forceinline__ void finish(int& done, float (&o)[Traits::kOutN / 2],
                                         RowStats& stats) {
    if (done < 0) return;
    if constexpr (Traits::kArrives) {
      const int place = broadcast(lane_ == 0 ? smem_.work[done].leave : 0);
      if constexpr (Traits::kArrives) {
        goes_on_ = place >= 0 && broadcast(lane_ == 0 ? smem_.work[work_.slot].resume : 0) == place;
      }
      if (place >= 0) {
        if (!goes_on_) put_down<Traits>(p_, place, wg_, o, stats);
        if (lane_ == 0) ptx::mbarrier_arrive(&smem_.work_empty[done]);
        __syncwarp();
        done = -1;
        return;
      }
    }
    float m2[2];
    close_sums(o, stats, m2);
    if constexpr (Traits::kStaged) {
      staged_.leave(plan_, smem_, wg_, warp_, lane_, o, stats.sum, m2);
      if (lane_ == 0) ptx::mbarrier_arrive(&smem_.work_empty[done]);
      __syncwarp();
    } else {
      if (Traits::kSplit && ptx::cluster_size() > 1) {
        put_part<Traits>(smem_, warp_, lane_, o, stats.sum, m2);
      } else {
        const ItemPlace item = read_item(done);
        if (lane_ == 0) ptx::mbarrier_arrive(&smem_.work_empty[done]);
        write_rows<T, Traits::kDv, Traits::kCarries>(plan_, item.unit, item.b, item.head, warp_,
                                                     lane_, o, stats.sum, m2);
        if constexpr (Traits::kArrives) tell_early(p_, item.unit.segment, lane_);
      }
    }
    done = -1;
  }

  // This lane's part of the row sums, and the maxima in log2 units.
  __device__ __forceinline__ void close_sums(const float (&o)[Traits::kOutN / 2], RowStats& stats,
                                             float (&m2)[2]) const {
    m2[0] = stats.max[0] * scale_log2_;
    m2[1] = stats.max[1] * scale_log2_;
    if constexpr (Traits::kOnes) {
      const bool first = lane_ % 4 == 0;
      stats.sum[0] = first ? o[Traits::kDv / 2] : 0.f;
      stats.sum[1] = first ? o[Traits::kDv / 2 + 2] : 0.f;
    }
  }

  // Signals every CTA that fills the slot.
  __device__ __forceinline__ void release(uint64_t (&barriers)[Traits::kKvStages], int slot) {
    __syncwarp();
    // Lane 0, the reader of the producer's data beside the tile, signals this CTA's producer.
    if (lane_ == 0) ptx::mbarrier_arrive(&barriers[slot]);
    if (Traits::kCluster > 1 && lane_ == 1) {
      ptx::mbarrier_arrive_cluster(&barriers[slot], ptx::cluster_rank() ^ 1);
    }
  }

  __device__ int turn() const {
    return 1 + wg_;
  }
  __device__ int next_turn() const {
    return 1 + (wg_ + 1) % Traits::kConsumers;
  }

  const HopperParams& p_;
  const AttentionPlan& plan_;
  HopperSmem<Traits>& smem_;
  const int wg_;
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
  StagedSums<Traits> staged_;
  bool goes_on_ = false;  // continue with the present sums
  uint32_t q_fragments_[Traits::kQInRegisters ? Traits::kDqk / 4 : 1];
};

}  // namespace braid::cuda
