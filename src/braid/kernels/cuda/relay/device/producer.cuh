#pragma once

#include "braid/kernels/cuda/ptx/once.h"
#include "braid/kernels/cuda/ptx/tma.h"
#include "braid/kernels/cuda/relay/device/relay_args.h"
#include "braid/kernels/cuda/relay/relay_layout.h"

// The warps that bring weights and keys. They wait for nothing but room: a step's weights come
// while its input is still made.
namespace braid::cuda {

template <int kD>
class RelayProducer {
 public:
  __device__ RelayProducer(const RelayArgs& a, uint8_t* smem, const RelayLayout& layout, int index)
      : a_(a),
        ring_(smem + layout.ring),
        full_(reinterpret_cast<uint64_t*>(smem + layout.barriers)),
        empty_(full_ + a.slots),
        ahead_(reinterpret_cast<RelayStep*>(smem + layout.ahead) + 2 * index),
        index_(index),
        lane_(threadIdx.x % 32),
        slot_(index),
        oldest_(index),
        once_(ptx::evict_first_policy()) {}

  __device__ void run() {
    uint4 next = read_step(0);
    for (int i = 0; i < a_.num_steps; ++i) {
      RelayStep& step = ahead_[i & 1];
      if (lane_ < kWords) reinterpret_cast<uint4*>(&step)[lane_] = next;
      __syncwarp();
      if (i + 1 < a_.num_steps) next = read_step(i + 1);
      if (!step.attends) {
        if (ptx::elect_one()) load_weights(step.linear);
      } else if constexpr (kD > 0) {
        load_keys(step.attention);
      }
      __syncwarp();
    }
  }

 private:
  static constexpr int kWords = sizeof(RelayStep) / 16;
  static_assert(sizeof(RelayStep) % 16 == 0 && kWords <= 32);

  __device__ uint4 read_step(int i) const {
    return lane_ < kWords ? __ldg(reinterpret_cast<const uint4*>(a_.steps + i) + lane_) : uint4{};
  }

  // Whether the next piece is this warp's.
  __device__ bool mine() {
    const bool is = turn_ == index_;
    turn_ = turn_ + 1 == kRelayProducers ? 0 : turn_ + 1;
    return is;
  }

  // The next slot, once it is free; `bytes` will come. Few copies are on their way at a time: words
  // that other CTAs wait for pass through the same memory.
  __device__ uint8_t* take(int bytes) {
    ptx::mbarrier_wait(&empty_[slot_], parity_);
    if (flying_ == kRelayInFlight) {
      ptx::mbarrier_wait(&full_[oldest_], oldest_parity_);
      step_on(oldest_, oldest_parity_);
    } else {
      ++flying_;
    }
    ptx::mbarrier_arrive_expect(&full_[slot_], bytes);
    return ring_ + slot_ * kRelaySlotBytes;
  }
  __device__ void step_on(int& slot, uint32_t& parity) const {
    slot += kRelayProducers;
    if (slot >= a_.slots) {
      slot -= a_.slots;
      parity ^= 1;
    }
  }

  __device__ void load_weights(const RelayLinear& s) {
    const int pairs = s.units / 2;
    const int end = 2 * relay_begin(pairs, blockIdx.x + 1, gridDim.x);
    const int row_bytes = 2 * s.k;
    int unit = 2 * relay_begin(pairs, blockIdx.x, gridDim.x);
    int part = 0, row = unit;
    if (!s.gated) {
      while (row >= s.n[part]) row -= s.n[part++];
    }
    const uint8_t* from = s.w[part] + int64_t{row} * row_bytes;
    const uint8_t* up = s.gated ? s.w[1] + int64_t{row} * row_bytes : nullptr;
    const int left = s.gated ? 0 : s.n[part] - row;  // rows until the next weight begins
    load_rows(from, up, row_bytes, s.gated || end - unit < left ? end - unit : left);
    if (s.gated) return;
    for (unit += left; unit < end; unit += s.n[part]) {
      ++part;
      load_rows(s.w[part], nullptr, row_bytes, min(s.n[part], end - unit));
    }
  }

  // Rows that follow each other; of a gated pair by turns.
  __device__ void load_rows(const uint8_t* from, const uint8_t* up, int row_bytes, int rows) {
#pragma unroll 1
    for (; rows > 0; --rows) {
#pragma unroll 1
      for (int gate = up != nullptr ? 0 : 1; gate < 2; ++gate) {
        const uint8_t* at = gate == 0 || up == nullptr ? from : up;
#pragma unroll 1
        for (int left = row_bytes; left > 0; left -= kRelaySlotBytes, at += kRelaySlotBytes) {
          if (!mine()) continue;
          const int n = min(left, kRelaySlotBytes);
          uint8_t* to = take(n);
          ptx::bulk_copy(to, at, n, &full_[slot_], once_);
          step_on(slot_, parity_);
        }
      }
      from += row_bytes;
      if (up != nullptr) up += row_bytes;
    }
  }

  // Each lane looks the page of one copy up, for as many units at a time.
  __device__ void load_keys(const RelayAttention& s) {
    constexpr int kKeys = relay_keys(kD > 0 ? kD : 64);
    const RelayKeys keys(__ldg(s.kv_len), s.window, s.kv_heads, kKeys, gridDim.x);
    const int end = keys.begin(blockIdx.x + 1);
    const int box = min(s.page_size, kKeys), boxes = kKeys / box, together = 32 / boxes;
#pragma unroll 1
    for (int first = keys.begin(blockIdx.x); first < end; first += together) {
      const int unit = first + lane_ / boxes;
      const int head = unit / keys.units;
      const int key = (keys.first_unit + unit - head * keys.units) * kKeys + lane_ % boxes * box;
      // Past the sequence's end: keys that nobody sees.
      int row = 0;
      if (unit < end && key < keys.length) {
        row = __ldg(s.page_table + key / s.page_size) * s.page_size + key % s.page_size;
      }
#pragma unroll 1
      for (int i = 0; i < together && first + i < end; ++i) {
        const bool mine = ptx::elect_one() && this->mine();
        uint8_t* to = mine ? take(kRelaySlotBytes) : nullptr;
        __syncwarp();
        const int its_head = __shfl_sync(0xffffffff, head, i * boxes);
#pragma unroll 1
        for (int j = 0; j < boxes; ++j) {
          const int its_row = __shfl_sync(0xffffffff, row, i * boxes + j);
          if (!mine) continue;
          const auto* k_map = static_cast<const CUtensorMap*>(s.k_map);
          const auto* v_map = static_cast<const CUtensorMap*>(s.v_map);
          uint8_t* at = to + j * box * kD * 2;
          ptx::tma_load_3d(at, k_map, &full_[slot_], 0, its_head, its_row, once_);
          ptx::tma_load_3d(at + kRelaySlotBytes / 2, v_map, &full_[slot_], 0, its_head, its_row,
                           once_);
        }
        if (mine) step_on(slot_, parity_);
        __syncwarp();
      }
    }
  }

  const RelayArgs& a_;
  uint8_t* const ring_;
  uint64_t* const full_;
  uint64_t* const empty_;
  RelayStep* const ahead_;
  const int index_;
  const int lane_;
  // Of the lane that is elected, always the same.
  int turn_ = 0;
  int slot_;
  uint32_t parity_ = 1;
  int oldest_;  // slot of the first copy that is on its way
  uint32_t oldest_parity_ = 0;
  int flying_ = 0;
  const uint64_t once_;
};

}  // namespace braid::cuda
