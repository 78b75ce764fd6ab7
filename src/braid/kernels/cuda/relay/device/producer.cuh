#pragma once

#include "braid/kernels/cuda/ptx/once.h"
#include "braid/kernels/cuda/ptx/tma.h"
#include "braid/kernels/cuda/relay/device/worker.cuh"

// The warps that copy weights and keys. Producers wait for free slots only: a step's weights arrive
// before the step's input is finished.
namespace braid::cuda {

template <int kD, bool kBlocks>
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
        flow_(a, smem, layout),
        once_(ptx::evict_first_policy()) {}

  __device__ void run() {
    uint4 next = read_step(0);
    for (int i = 0; i < a_.num_steps; ++i) {
      RelayStep& step = ahead_[i & 1];
      if (lane_ < kWords) reinterpret_cast<uint4*>(&step)[lane_] = next;
      __syncwarp();
      if (i + 1 < a_.num_steps) next = read_step(i + 1);
      if (!step.attends) {
        const bool tiled = kBlocks && step.linear.tiled();
        tiled ? load_tiles(step.linear) : load_weights(step.linear);
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

  // Producers take turns: this producer's first slot among the next `count`.
  __device__ int first_of(int count) {
    const int first = (index_ + kRelayProducers - turn_) % kRelayProducers;
    turn_ = (turn_ + count) % kRelayProducers;
    return first;
  }

  // The next slot, once it is free and no more copies are on their way than RelayFlow lets; `bytes`
  // will come.
  __device__ uint8_t* take(int bytes) {
    const int most = flow_.in_flight();
    ptx::mbarrier_wait(&empty_[slot_], parity_);
    for (; flying_ >= most; --flying_) {
      ptx::mbarrier_wait(&full_[oldest_], oldest_parity_);
      step_on(oldest_, oldest_parity_);
    }
    ++flying_;
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
    const RelayOutputs outputs(s.cut, blockIdx.x);
    const bool issues = ptx::elect_one();
#pragma unroll 1
    for (int part = 0; part < kRelayWeights; ++part) {
      const RelayRows rows(s, part, outputs);
      const int bytes = rows.count * 2 * s.k;
      const uint8_t* from = s.w[part] + int64_t{rows.first} * 2 * s.k;
      int at = first_of(rows.slots(s.k)) * kRelaySlotBytes;
#pragma unroll 1
      for (; issues && at < bytes; at += kRelayProducers * kRelaySlotBytes) {
        const int size = min(bytes - at, kRelaySlotBytes);
        uint8_t* to = take(size);
        ptx::bulk_copy(to, from + at, size, &full_[slot_], once_);
        step_on(slot_, parity_);
      }
    }
  }

  __device__ void load_tiles(const RelayLinear& s) {
    const RelayOutputs outputs(s.cut, blockIdx.x);
    const bool issues = ptx::elect_one();
#pragma unroll 1
    for (int part = 0; part < kRelayWeights; ++part) {
      const RelayRows rows(s, part, outputs);
      const RelayTiles& cut = s.cut.tiles[part];
      const int chunk = first_of(rows.tiles() * cut.chunks);
      if (!cut.boxed) {
        load_rows(s.w[part], rows, cut, chunk, issues);
      } else if (issues) {
        load_boxes(static_cast<const CUtensorMap*>(s.map[part]), rows, cut, chunk);
      }
    }
  }

  // Visits this producer's slots for a weight, from `chunk` in the first tile on: f(tile, chunk).
  template <class F>
  __device__ __forceinline__ static void for_slots(const RelayRows& rows, const RelayTiles& cut,
                                                   int chunk, const F& f) {
    const int chunks = cut.chunks, tiles = rows.tiles();
    int tile = 0;
#pragma unroll 1
    while (true) {
      for (; tile < tiles && chunk >= chunks; chunk -= chunks) ++tile;
      if (tile >= tiles) return;
      f(tile, chunk);
      chunk += kRelayProducers;
    }
  }

  // A copy for a tile's chunk.
  __device__ void load_boxes(const CUtensorMap* map, const RelayRows& rows, const RelayTiles& cut,
                             int first) {
    const int bytes = kRelayTileRows * cut.stride, chunk_bytes = cut.chunk_bytes;
    for_slots(rows, cut, first, [&](int tile, int chunk) {
      uint8_t* to = take(bytes);
      ptx::tma_load_2d(to, map, &full_[slot_], chunk * chunk_bytes / 16 * 8,
                       rows.first + tile * kRelayTileRows, once_);
      step_on(slot_, parity_);
    });
  }

  // A copy for each row, sent by the row's lane.
  __device__ void load_rows(const uint8_t* w, const RelayRows& rows, const RelayTiles& cut,
                            int first, bool issues) {
    const int issuer = __ffs(__ballot_sync(0xffffffff, issues)) - 1;
    for_slots(rows, cut, first, [&](int tile, int chunk) {
      const int row = tile * kRelayTileRows + lane_, at = chunk * cut.chunk_bytes;
      const uint8_t* from = w + int64_t{rows.first + row} * cut.row_bytes + at;
      const auto skew = static_cast<int>(reinterpret_cast<uintptr_t>(from) % 16);
      const bool is_there = lane_ < kRelayTileRows && row < rows.count;
      const int its = min(cut.chunk_bytes, cut.row_bytes - at);
      const int size = is_there ? (skew + its + 15) / 16 * 16 : 0;
      const int bytes = __reduce_add_sync(0xffffffff, size);
      if (issues) take(bytes);
      __syncwarp();
      const int slot = __shfl_sync(0xffffffff, slot_, issuer);
      if (is_there) {
        ptx::bulk_copy(ring_ + slot * kRelaySlotBytes + lane_ * cut.stride, from - skew, size,
                       &full_[slot], once_);
      }
      if (issues) step_on(slot_, parity_);
      __syncwarp();
    });
  }

  // Each lane looks up the page of a copy, for as many units at a time.
  __device__ void load_keys(const RelayAttention& s) {
    constexpr int kKeys = relay_keys(kD > 0 ? kD : 64);
    const RelayKeys keys(__ldg(s.kv_len), s.window, s.kv_heads, kKeys, gridDim.x);
    const int begin = keys.shares.begin(blockIdx.x), end = keys.shares.end(blockIdx.x);
    const int box = min(s.page_size, kKeys), boxes = kKeys / box, together = 32 / boxes;
    const auto* k_map = static_cast<const CUtensorMap*>(s.k_map);
    const auto* v_map = static_cast<const CUtensorMap*>(s.v_map);
    const bool issues = ptx::elect_one();
#pragma unroll 1
    for (int first = begin + first_of(end - begin); first < end;
         first += together * kRelayProducers) {
      const int unit = first + lane_ / boxes * kRelayProducers;
      const int head = unit / keys.units;
      const int key = (keys.first_unit + unit - head * keys.units) * kKeys + lane_ % boxes * box;
      // Keys past the sequence's end are never visible.
      int row = 0;
      if (unit < end && key < keys.length) {
        row = __ldg(s.page_table + key / s.page_size) * s.page_size + key % s.page_size;
      }
#pragma unroll 1
      for (int i = 0; i < together && first + i * kRelayProducers < end; ++i) {
        uint8_t* to = issues ? take(kRelaySlotBytes) : nullptr;
        __syncwarp();
        const int its_head = __shfl_sync(0xffffffff, head, i * boxes) * (kD / 64);
#pragma unroll 1
        for (int j = 0; j < boxes; ++j) {
          const int its_row = __shfl_sync(0xffffffff, row, i * boxes + j);
          if (!issues) continue;
          uint8_t* at = to + j * box * kD * 2;
          ptx::tma_load_3d(at, k_map, &full_[slot_], 0, its_head, its_row, once_);
          ptx::tma_load_3d(at + kRelaySlotBytes / 2, v_map, &full_[slot_], 0, its_head, its_row,
                           once_);
        }
        if (issues) step_on(slot_, parity_);
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
  int turn_ = 0;  // turn of the next slot
  // For the elected lane, always the same lane.
  int slot_;
  uint32_t parity_ = 1;
  int oldest_;  // slot of the oldest copy under way
  uint32_t oldest_parity_ = 0;
  int flying_ = 0;
  const RelayFlow flow_;
  const uint64_t once_;
};

}  // namespace braid::cuda
