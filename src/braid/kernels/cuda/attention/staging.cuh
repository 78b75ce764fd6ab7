#pragma once

#include "braid/kernels/cuda/attention/epilogue.cuh"
#include "braid/kernels/cuda/attention/hopper_launch.h"
#include "braid/kernels/cuda/attention/hopper_smem.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/cluster.h"

// Rows of O, and carried states, on their way between registers and memory through shared memory.
// A warpgroup's 64 rows have a place each. Where an item ends, its rows are left there and the next
// item's state is taken from there, word by word in the same places; a warp of its own brings and
// fetches them while the warpgroups multiply.
namespace braid::cuda {

// The place of 64 rows. Units of 16 bytes are permuted within a row, so that the accumulators of a
// warp (8 rows at a time) meet no bank twice.
template <int kDv>
struct StagedRows {
  static constexpr int kPitch32 = kDv * 4;
  static constexpr int kPitch16 = (kDv * 2 + 127) / 128 * 128;
  static constexpr int kBytes = 64 * kPitch32;

  // Of unit `u` of row `row`.
  template <bool k16Bit>
  __device__ static int offset(int row, int u) {
    return k16Bit ? row * kPitch16 + (u ^ (row & 7)) * 16
                  : row * kPitch32 + (u ^ (row & 3) << 1) * 16;
  }

  // f32 rows: leaves `o` there (kOut), takes what was there (kIn).
  template <bool kOut, bool kIn, int kCount>
  __device__ __forceinline__ static void swap32(uint8_t* rows, int warp, int lane,
                                                float (&o)[kCount]) {
    lane = ptx::opaque(lane);  // addresses are made here, not kept
    const int row = warp * 16 + lane / 4;
    uint8_t* base = rows + row * kPitch32 + lane % 4 * 8;
#pragma unroll
    for (int j = 0; j < kDv / 8; ++j) {
      uint8_t* at = base + (j % 4 ^ (row & 3)) * 32 + j / 4 * 128;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        auto* p = reinterpret_cast<float2*>(at + r * 8 * kPitch32);
        float2 x;
        if (kIn) x = *p;
        if (kOut) *p = make_float2(o[4 * j + 2 * r], o[4 * j + 2 * r + 1]);
        if (kIn) {
          o[4 * j + 2 * r] = x.x;
          o[4 * j + 2 * r + 1] = x.y;
        }
      }
    }
  }

  template <int kCount>
  __device__ __forceinline__ static void take_bf16(const uint8_t* rows, int warp, int lane,
                                                   float (&o)[kCount]) {
    lane = ptx::opaque(lane);
    const int row = warp * 16 + lane / 4;
    const uint8_t* base = rows + row * kPitch16 + lane % 4 * 4;
#pragma unroll
    for (int j = 0; j < kDv / 8; ++j) {
      const uint8_t* at = base + (j % 8 ^ (row & 7)) * 16 + j / 8 * 128;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t x = *reinterpret_cast<const uint32_t*>(at + r * 8 * kPitch16);
        o[4 * j + 2 * r] = __uint_as_float(x << 16);
        o[4 * j + 2 * r + 1] = __uint_as_float(x & 0xffff0000);
      }
    }
  }

  __device__ __forceinline__ static void put16(uint8_t* rows, int warp, int lane,
                                               const uint32_t (&packed)[kDv / 4]) {
    lane = ptx::opaque(lane);
    const int row = warp * 16 + lane / 4;
    uint8_t* base = rows + row * kPitch16 + lane % 4 * 4;
#pragma unroll
    for (int j = 0; j < kDv / 8; ++j) {
      uint8_t* at = base + (j % 8 ^ (row & 7)) * 16 + j / 8 * 128;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        *reinterpret_cast<uint32_t*>(at + r * 8 * kPitch16) = packed[2 * j + r];
      }
    }
  }
};

// The warp that moves the rows of one consumer warpgroup. It walks the same items as the producer.
template <class Traits>
class HopperMover {
  using Rows = StagedRows<Traits::kDv>;

 public:
  __device__ HopperMover(const HopperParams& p, HopperSmem<Traits>& smem, int wg)
      : p_(p), smem_(smem), wg_(wg), lane_(threadIdx.x % 32) {}

  __device__ void run() {
    const AttentionPlan& plan = p_.plan;
    ptx::grid_dependency_wait();
    int index = blockIdx.x / Traits::kCluster;
    int before = -1;
    uint32_t parity = 0;
    while (true) {
      const bool exists = index < plan.num_items;
      WorkItem item{};
      if (exists) {
        item = decode_item(plan, index);
        if (skips(plan, item, count_key_tiles(plan, item, Traits::kBlockN))) {
          index = next_index(index);
          continue;
        }
      } else if (before < 0) {
        break;
      }
      if (before >= 0 || plan.load_state) {
        if (exists && plan.load_state) {
          load(item);
        } else {
          ptx::mbarrier_arrive(&smem_.state_full[wg_]);
        }
        ptx::mbarrier_wait(&smem_.state_out[wg_], parity);
        parity ^= 1;
      }
      const int next = exists ? next_index(index) : 0;
      if (before >= 0) store(decode_item(plan, before));
      if (!exists) break;
      before = index;
      index = next;
    }
  }

 private:
  // CTAs without clusters hear of their items from the first mover, which asks for them.
  __device__ int next_index(int index) {
    if (Traits::kCluster > 1) return index + gridDim.x / Traits::kCluster;
    const int slot = next_.slot;
    int next = 0;
    if (wg_ == 0) {
      ptx::mbarrier_wait(&smem_.next_empty[slot], next_.parity ^ 1);
      if (lane_ == 0) {
        next = atomicAdd(&p_.counters[0], 1) + gridDim.x;
        smem_.next_index[slot] = next;
        ptx::mbarrier_arrive(&smem_.next_full[slot]);
      }
    } else {
      next = take_next(smem_, next_, lane_);
    }
    next_.next();
    return __shfl_sync(0xffffffff, next, 0);
  }

  __device__ ItemUnit unit_of(const WorkItem& item) const {
    const int skip = Traits::kCluster > 1 ? ptx::cluster_rank() * Traits::kConsumers : 0;
    ItemUnit u = locate(p_.plan, item.run, item.b, item.unit + skip);
    for (int w = 0; w < wg_; ++w) u = next_unit(p_.plan, item.run, u);
    return u;
  }

  __device__ void load(const WorkItem& item) {
    p_.plan.state_bf16 ? load_rows<true>(item) : load_rows<false>(item);
    ptx::mbarrier_arrive_copies(&smem_.state_full[wg_]);
  }

  __device__ void store(const WorkItem& item) {
    p_.plan.finalize || p_.plan.state_bf16 ? store_rows<true>(item) : store_rows<false>(item);
  }

  // Lanes side by side on a row's units of 16 bytes, as many whole rows at a time as fit.
  template <int kUnits_>
  struct RowLanes {
    static constexpr int kUnits = kUnits_;
    static constexpr int kRows = 32 / kUnits;
    static constexpr int kActive = kRows * kUnits;
  };

  __device__ int valid_rows(const ItemUnit& unit) const {
    return max_i(0, min_i(p_.plan.unit_tokens, unit.length - unit.token)) * p_.plan.pack;
  }

  // f(place in shared memory, place in memory) for each 16 bytes of the rows.
  template <bool k16Bit, int kUnroll, class F>
  __device__ void for_each_unit(const ItemUnit& unit, const char* base, int64_t token_bytes,
                                int64_t head_bytes, F f) const {
    using Lanes = RowLanes<Traits::kDv*(k16Bit ? 2 : 4) / 16>;
    const int first = lane_ / Lanes::kUnits;
    const int u = lane_ % Lanes::kUnits;
    const int rows = lane_ < Lanes::kActive ? valid_rows(unit) : 0;
    uint8_t* smem = smem_.state[wg_];
    base += u * 16;
    if (p_.plan.pack == 1) {
      const int64_t step = Lanes::kRows * token_bytes;
      base += first * token_bytes;
#pragma unroll kUnroll
      for (int row = first; row < rows; row += Lanes::kRows, base += step) {
        f(smem + Rows::template offset<k16Bit>(row, u), base);
      }
    } else {
#pragma unroll 1
      for (int row = first; row < rows; row += Lanes::kRows) {
        const int token = row * p_.plan.pack_inverse >> 16;
        f(smem + Rows::template offset<k16Bit>(row, u),
          base + token * token_bytes + (row - token * p_.plan.pack) * head_bytes);
      }
    }
    __syncwarp();
  }

  template <bool k16Bit>
  __device__ void load_rows(const WorkItem& item) {
    constexpr int kBytes = k16Bit ? 2 : 4;
    const ItemUnit unit = unit_of(item);
    const QSegment& q = p_.plan.q[unit.segment];
    const int64_t at = output_row(p_.plan, unit, item.b, item.head, 0).state;
    for_each_unit<k16Bit, 4>(
        unit, static_cast<const char*>(q.state_o) + at * kBytes, q.state_stride.token * kBytes,
        q.state_stride.head * kBytes,
        [](uint8_t* smem, const char* global) { ptx::cp_async_16(smem, global, true); });
    for (int row = lane_; row < valid_rows(unit); row += 32) {
      const OutputRow out = output_row(p_.plan, unit, item.b, item.head, row);
      ptx::prefetch_l2(q.state_l + out.stat);
      ptx::prefetch_l2(q.state_m + out.stat);
    }
    __syncwarp();
  }

  template <bool k16Bit>
  __device__ void store_rows(const WorkItem& item) {
    const ItemUnit unit = unit_of(item);
    const QSegment& q = p_.plan.q[unit.segment];
    const OutputRow out = output_row(p_.plan, unit, item.b, item.head, 0);
    const bool finalize = p_.plan.finalize;
    const int bytes = k16Bit ? 2 : 4;
    const Strides& stride = finalize ? q.o_stride : q.state_stride;
    for_each_unit<k16Bit, 2>(
        unit,
        static_cast<char*>(finalize ? q.o : q.state_o) + (finalize ? out.o : out.state) * bytes,
        stride.token * bytes, stride.head * bytes, [](uint8_t* smem, const char* global) {
          *reinterpret_cast<uint4*>(const_cast<char*>(global)) = *reinterpret_cast<uint4*>(smem);
        });
  }

  const HopperParams& p_;
  HopperSmem<Traits>& smem_;
  const int wg_;
  const int lane_;
  Ring<2> next_;
};

}  // namespace braid::cuda
