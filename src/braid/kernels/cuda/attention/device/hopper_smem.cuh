#pragma once

#include "braid/kernels/cuda/attention/plan.h"
#include "braid/kernels/cuda/attention/variants.h"
#include "braid/kernels/cuda/ptx/barrier.h"

// An instance of the Hopper kernel, and its warps' shared memory: tiles, barriers, items.
namespace braid::cuda {

// `kVariant`: the row of kHopperVariants.
template <class T_, int kVariant>
struct HopperTraits {
  using T = T_;
  static constexpr HopperVariant kRow = kHopperVariants[kVariant];
  static constexpr int kDqk = kRow.head_dim_qk;
  static constexpr int kDv = kRow.head_dim_v;
  static constexpr int kConsumers = kRow.consumers;
  static constexpr int kBlockN = kRow.block_n;
  static constexpr int kKvStages = kRow.kv_stages;
  static constexpr int kQStages = kRow.q_stages;
  static constexpr int kCtasPerSm = kRow.ctas_per_sm;
  static constexpr int kCluster = kRow.cluster;  // shares key tiles by multicast: 1 or 2 CTAs
  static_assert(kCluster == 1 || kCluster == 2);
  static constexpr HopperForm kForm = kRow.form;
  // An item's sums may start from a carried state and become a carried state.
  static constexpr bool kCarries = kForm == HopperForm::kCarrying;
  // Rows of O and of the state pass through shared memory (staging.cuh), and an item's carried
  // state joins the sums at the item's end.
  static constexpr bool kStaged = kForm == HopperForm::kStaged;
  // A CTA leaves an item without present keys, and comes back to the item (held_items.cuh).
  static constexpr bool kArrives = kForm == HopperForm::kArriving;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  // Three consumers leave more registers to the copying warps if 152 registers are enough: heads of
  // 96, staged.
  static constexpr bool kFewer = kConsumers == 3 && kStaged && kDqk == 96;
  static constexpr int kProducerRegisters = kFewer            ? 56
                                            : kConsumers == 3 ? 32
                                            : kConsumers == 2 ? 40
                                                              : 24;
  static constexpr int kConsumerRegisters = kFewer                               ? 152
                                            : kConsumers == 3                    ? 160
                                            : kConsumers == 2 || kCtasPerSm == 2 ? 232
                                                                                 : 240;
  static constexpr bool kQInRegisters = kRow.q_in_registers;
  // The CTAs of a cluster, 1 to 8, share the keys of a single item and merge their results; a CTA
  // ends after the item.
  static constexpr bool kSplit = kRow.splits;
  static_assert(!kSplit || (!kStaged && !kArrives));
  // The next item is looked up while an item is worked on, which takes registers.
  static constexpr bool kLooksAhead = kStaged && kProducerRegisters >= 40;
  static constexpr bool kTakeTurns = kConsumers > 1;
  // Head dim 64: row sums are columns of ones in the product with V, and add up rounded
  // probabilities. Additions are saved, because instructions bound this kernel.
  static constexpr bool kOnes = kDv == 64;
  static constexpr int kOutN = kDv + (kOnes ? 8 : 0);

  // Rows are cut into chunks of 64 elements = 128 bytes, the swizzle's width; head dim 96 has a
  // last chunk with half zeros.
  static constexpr int kChunksQk = (kDqk + 63) / 64;
  static constexpr int kChunksV = (kDv + 63) / 64;
  static constexpr int kQChunkBytes = 64 * 128;
  static constexpr int kQBytes = kChunksQk * kQChunkBytes;  // for a warpgroup
  static constexpr int kKvChunkBytes = kBlockN * 128;
  static constexpr int kKBytes = kChunksQk * kKvChunkBytes;
  static constexpr int kVBytes = kChunksV * kKvChunkBytes;
  static constexpr int kSumUnits = sum_units(kDv);
  static_assert(kSumUnits == kOutN / 8 + 1);
};

// An item's data for the consumers.
template <int kConsumers>
struct WorkSlot {
  int num_tiles;  // of keys; -1: no item, all are done
  int b;
  int head;
  ItemUnit unit[kConsumers];
  int resume;  // place of the sums to continue from; -1: none
  int leave;   // place for the sums to leave; -1: finished
};

// Place of a warpgroup's 64 rows in an item.
struct ItemPlace {
  int b;
  int head;
  ItemUnit unit;
};

// A key tile's data for the consumers.
struct KeyTileInfo {
  int position;  // of column 0
  int valid;     // keys of the segment from column 0 on
  int masked;
  int unused;
};

template <class Traits>
struct HopperSmem {
  static constexpr int kWorkSlots = Traits::kLooksAhead ? 3 : 2;
  alignas(1024) uint8_t q[Traits::kQStages][Traits::kConsumers][Traits::kQBytes];
  alignas(1024) uint8_t k[Traits::kKvStages][Traits::kKBytes];
  alignas(1024) uint8_t v[Traits::kKvStages][Traits::kVBytes];
  alignas(1024) uint8_t ones[Traits::kOnes ? 2048 : 16];
  alignas(128) uint8_t
      state[Traits::kStaged ? Traits::kConsumers : 1][Traits::kStaged ? 64 * Traits::kDv * 4 : 16];
  KeyTileInfo tile[Traits::kKvStages];
  WorkSlot<Traits::kConsumers> work[kWorkSlots];
  uint64_t q_full[Traits::kQStages][Traits::kConsumers];
  uint64_t q_empty[Traits::kQStages][Traits::kConsumers];
  uint64_t k_full[Traits::kKvStages];
  uint64_t k_empty[Traits::kKvStages];
  uint64_t v_full[Traits::kKvStages];
  uint64_t v_empty[Traits::kKvStages];
  uint64_t work_full[kWorkSlots];
  uint64_t work_empty[kWorkSlots];
  uint64_t scrub;
  float2 state_stats[Traits::kStaged ? Traits::kConsumers : 1][64];  // m, l; or lse
  uint64_t state_full[Traits::kConsumers];  // the item's carried state is present
  uint64_t state_out[Traits::kConsumers];   // the item's rows are present
  int told[2];  // to the cluster's other CTA: stages that the first CTA has seen
  uint64_t told_full[2];
  uint64_t told_empty[2];

  // For a split item, in place of keys and values: O' by rows, m and l by rows; then, for the rows
  // that this CTA merges, each part's weight, and the row's m and l.
  static constexpr int kPartRow = Traits::kDv + 4;
  __device__ float* part() { return reinterpret_cast<float*>(k[0]); }
  __device__ float2* part_stats() { return reinterpret_cast<float2*>(part() + 64 * kPartRow); }
  __device__ float2* part_total() { return part_stats() + 64; }
  __device__ auto* part_weights() {
    return reinterpret_cast<float(*)[kMaxSplit]>(part_total() + 64);
  }
  static_assert(!Traits::kSplit || 64 * (kPartRow + 4 + kMaxSplit) * 4 <=
                                       Traits::kKvStages * (Traits::kKBytes + Traits::kVBytes));
};

// Whether an item is passed over: without rows, or a carried state that sees no new key.
__device__ inline bool skips(const AttentionPlan& plan, const WorkItem& item, int num_tiles) {
  return !item.any || (num_tiles == 0 && plan.load_state && !plan.finalize);
}

// Position in a ring of `kSlots`, with the parity for mbarrier_wait.
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

}  // namespace braid::cuda
