#pragma once

#include "braid/kernels/cuda/attention/device/epilogue.cuh"
#include "braid/kernels/cuda/attention/device/hopper_launch.h"
#include "braid/kernels/cuda/attention/device/hopper_smem.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/cluster.h"

// Moves rows of O and carried states between registers and memory, through shared memory. Each of a
// warpgroup's 64 rows has a place. An item's carried state arrives there during the item's work; at
// the item's end the state merges with the sums, and the result replaces the state, word by word. A
// separate warp moves rows while the warpgroups multiply.
namespace braid::cuda {

// Shared memory for 64 rows. Units of 16 bytes are permuted within a row, so a warp's accumulators
// (8 rows at a time) meet no bank twice.
template <int kDv>
struct StagedRows {
  static constexpr int kPitch32 = kDv * 4;
  static constexpr int kPitch16 = (kDv * 2 + 127) / 128 * 128;
  static constexpr int kBytes = 64 * kPitch32;

  // 16-bit rows occupy the place of their warp's 32-bit rows.
  __device__ static int row16(int row) { return row / 16 * (16 * kPitch32) + row % 16 * kPitch16; }

  // Offset of unit `u` in row `row`.
  template <bool k16Bit>
  __device__ static int offset(int row, int u) {
    return k16Bit ? row16(row) + (u ^ (row & 7)) * 16 : row * kPitch32 + (u ^ (row & 3) << 1) * 16;
  }

  // o * keep + stored * take (kIn; a row with zero `take` may hold anything): to `o`, and with kOut
  // to shared memory as well.
  template <class S, bool kIn, bool kOut, int kCount>
  __device__ __forceinline__ static void merge(uint8_t* rows, int warp, int lane,
                                               float (&o)[kCount], const float (&keep)[2],
                                               const float (&take)[2]) {
    constexpr bool k16Bit = sizeof(S) == 2;
    lane = ptx::opaque(lane);  // addresses are made here, not kept
    const int row = warp * 16 + lane / 4;
    uint8_t* base =
        k16Bit ? rows + row16(row) + lane % 4 * 4 : rows + row * kPitch32 + lane % 4 * 8;
#pragma unroll
    for (int j = 0; j < kDv / 8; ++j) {
      uint8_t* at = base + (k16Bit ? (j % 8 ^ (row & 7)) * 16 + j / 8 * 128
                                   : (j % 4 ^ (row & 3)) * 32 + j / 4 * 128);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        uint8_t* p = at + r * 8 * (k16Bit ? kPitch16 : kPitch32);
        float* x = &o[4 * j + 2 * r];
        float2 in = make_float2(0.f, 0.f);
        if (kIn && take[r] > 0.f) {
          if constexpr (k16Bit) {
            const uint32_t pair = *reinterpret_cast<const uint32_t*>(p);
            in = make_float2(ptx::low_half(pair), ptx::high_half(pair));
          } else {
            in = *reinterpret_cast<const float2*>(p);
          }
        }
        x[0] *= keep[r];
        x[1] *= keep[r];
        if (kIn) {
          x[0] = fmaf(in.x, take[r], x[0]);
          x[1] = fmaf(in.y, take[r], x[1]);
        }
        if (kOut) {
          if constexpr (k16Bit) {
            *reinterpret_cast<uint32_t*>(p) = ptx::pack<S>(x[0], x[1]);
          } else {
            *reinterpret_cast<float2*>(p) = make_float2(x[0], x[1]);
          }
        }
      }
    }
  }

  template <class S, int kCount>
  __device__ __forceinline__ static void put16(uint8_t* rows, int warp, int lane,
                                               const float (&o)[kCount]) {
    lane = ptx::opaque(lane);
    const int row = warp * 16 + lane / 4;
    uint8_t* base = rows + row16(row) + lane % 4 * 4;
#pragma unroll
    for (int j = 0; j < kDv / 8; ++j) {
      uint8_t* at = base + (j % 8 ^ (row & 7)) * 16 + j / 8 * 128;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        *reinterpret_cast<uint32_t*>(at + r * 8 * kPitch16) =
            ptx::pack<S>(o[4 * j + 2 * r], o[4 * j + 2 * r + 1]);
      }
    }
  }
};

// The warp that moves a consumer warpgroup's rows.
template <class Traits>
class HopperMover {
  using Rows = StagedRows<Traits::kDv>;

 public:
  __device__ HopperMover(const HopperParams& p, HopperSmem<Traits>& smem, int wg)
      : p_(p), smem_(smem), wg_(wg), lane_(threadIdx.x % 32) {}

  __device__ void run() {
    const AttentionPlan& plan = p_.plan;
    ptx::grid_dependency_wait();
    for (uint32_t parity = 0; take_item(); parity ^= 1) {
      if (plan.load_state) plan.state_bf16 ? load_rows<true>() : load_rows<false>();
      ptx::mbarrier_arrive(&smem_.state_full[wg_]);
      ptx::mbarrier_wait(&smem_.state_out[wg_], parity);
      plan.finalize || plan.state_bf16 ? store_rows<true>() : store_rows<false>();
    }
  }

 private:
  // Takes the next item, if present.
  __device__ bool take_item() {
    const int slot = work_.slot;
    ptx::mbarrier_wait(&smem_.work_full[slot], work_.parity);
    int tiles = 0;
    if (lane_ == 0) {
      const WorkSlot<Traits::kConsumers>& work = smem_.work[slot];
      tiles = work.num_tiles;
      b_ = work.b;
      head_ = work.head;
      unit_ = work.unit[wg_];
      ptx::mbarrier_arrive(&smem_.work_empty[slot]);
    }
    work_.next();
    const auto broadcast = [](int& x) { x = __shfl_sync(0xffffffff, x, 0); };
    broadcast(tiles);
    broadcast(b_);
    broadcast(head_);
    broadcast(unit_.segment);
    broadcast(unit_.token);
    broadcast(unit_.length);
    broadcast(unit_.row);
    broadcast(unit_.position);
    return tiles >= 0;
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
  __device__ void load_rows() {
    constexpr int kBytes = k16Bit ? 2 : 4;
    const QTensor& q = p_.plan.q[unit_.segment];
    const int64_t at = output_row(p_.plan, unit_, b_, head_, 0).state;
    for_each_unit<k16Bit, 4>(
        unit_, static_cast<const char*>(q.state_o) + at * kBytes, q.state_stride.token * kBytes,
        q.state_stride.head * kBytes,
        [](uint8_t* smem, const char* global) { ptx::cp_async_16(smem, global, true); });
    ptx::cp_async_commit();
    load_stats();
    ptx::cp_async_wait<0>();
  }

  __device__ void load_stats() {
    const QTensor& q = p_.plan.q[unit_.segment];
#pragma unroll
    for (int row = lane_; row < 64; row += 32) {
      const OutputRow out = output_row(p_.plan, unit_, b_, head_, row);
      float2 stats = make_float2(-INFINITY, 0.f);
      if (out.valid)
        stats = make_float2(__ldcg(q.state_m + out.stat), __ldcg(q.state_l + out.stat));
      smem_.state_stats[wg_][row] = stats;
    }
    __syncwarp();
  }

  template <bool k16Bit>
  __device__ void store_rows() {
    const QTensor& q = p_.plan.q[unit_.segment];
    const OutputRow first = output_row(p_.plan, unit_, b_, head_, 0);
    const bool finalize = p_.plan.finalize;
    const int bytes = k16Bit ? 2 : 4;
    const Strides& stride = finalize ? q.o_stride : q.state_stride;
    for_each_unit<k16Bit, 2>(
        unit_,
        static_cast<char*>(finalize ? q.o : q.state_o) + (finalize ? first.o : first.state) * bytes,
        stride.token * bytes, stride.head * bytes, [](uint8_t* smem, const char* global) {
          *reinterpret_cast<uint4*>(const_cast<char*>(global)) = *reinterpret_cast<uint4*>(smem);
        });
#pragma unroll
    for (int row = lane_; row < 64; row += 32) {
      const OutputRow out = output_row(p_.plan, unit_, b_, head_, row);
      if (!out.valid) continue;
      const float2 stats = smem_.state_stats[wg_][row];
      if (finalize) {
        if (q.lse != nullptr) q.lse[out.stat] = stats.x;
      } else {
        q.state_m[out.stat] = stats.x;
        q.state_l[out.stat] = stats.y;
      }
    }
    __syncwarp();
  }

  const HopperParams& p_;
  HopperSmem<Traits>& smem_;
  const int wg_;
  const int lane_;
  Ring<HopperSmem<Traits>::kWorkSlots> work_;
  ItemUnit unit_{};
  int b_ = 0;
  int head_ = 0;
};

}  // namespace braid::cuda
