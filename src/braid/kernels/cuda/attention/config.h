#pragma once

#include <string>
#include <vector>

#include "braid/kernels/cuda/attention/desc.h"

// Which kernel computes a call, and with which tiles: desc + lengths -> candidates -> config. Pure
// host code: no device is asked and none is needed.
namespace braid::cuda {

enum class AttentionKernel {
  kGeneric,  // mma.sync, any GPU from sm_80
  kHopper,   // wgmma and bulk tensor copies, sm_90a
};

constexpr int kMaxSplit = 8;

// What a Hopper kernel is made for. Code for more costs registers: it took up to 13% of short
// calls.
enum class HopperForm {
  kWhole,     // calls that start from nothing and finalize
  kCarrying,  // carried states, loaded into and stored from accumulators
  kStaged,    // carried states and rows of O, through shared memory
  kArriving,  // whole calls whose keys arrive while they run
  kChained,   // launches that take up the sums that the one before has left
};
constexpr bool carries_state(HopperForm form) {
  return form == HopperForm::kCarrying || form == HopperForm::kStaged;
}

// Whether a kernel of this form takes the call's keys as they come: at once, or in stages.
bool takes_stages_of(HopperForm form, const AttentionDesc& desc, const AttentionParams& params);

struct AttentionConfig {
  AttentionKernel kernel = AttentionKernel::kGeneric;
  int block_m = 0;      // rows of a tile: a CTA's, or those of a cluster's CTAs together
  int block_n = 0;      // keys of a tile
  int ctas_per_sm = 1;  // that fit together
  int cluster = 1;      // CTAs that share key tiles
  int split = 1;        // CTAs among which an item's keys are split, at most kMaxSplit
  int pack = 1;         // query heads of a KV head that share a tile's rows
  HopperForm form = HopperForm::kWhole;  // kHopper's
  double cost_us = 0;                    // the estimate that `choose` compares
  bool operator==(const AttentionConfig&) const = default;
};

// What the choice needs to know of the device.
struct AttentionDevice {
  int compute_capability = 90;  // 10 * major + minor
  int num_sms = 132;
};

// Everything that can compute the call, in a fixed order; the generic kernel always can.
std::vector<AttentionConfig> candidates(const AttentionDesc& desc, const AttentionParams& params,
                                        const AttentionDevice& device);

// The candidate with the least estimated cost.
AttentionConfig choose(const AttentionDesc& desc, const AttentionParams& params,
                       const AttentionDevice& device);

// What a thread leaves of an item, in units of 16 bytes: its accumulators (heads of 64 have eight
// more columns, for row sums), its rows' maxima and its part of their sums.
constexpr int sum_units(int head_dim_v) {
  return (head_dim_v + (head_dim_v == 64 ? 8 : 0)) / 8 + 1;
}

// Device memory for the items that a call whose keys arrive leaves, with their sums: for one, and
// for as many as its CTAs may come to leave; as much is enough for a chain.
constexpr size_t kHeldItemBytes = 32;
size_t attention_sums_bytes(const AttentionDesc& desc, const AttentionConfig& config);
size_t attention_sums_bytes(const AttentionDesc& desc, const AttentionParams& params,
                            const AttentionConfig& config, const AttentionDevice& device);

// Words of a chain: its launches' counters, and one for each item (AttentionLink::words).
constexpr size_t kLinkCounters = 2 * kMaxKvSegments;
constexpr size_t link_words(int32_t items) {
  return kLinkCounters + static_cast<size_t>(items);
}
size_t attention_link_words(const AttentionDesc& desc, const AttentionParams& params,
                            const AttentionConfig& config);

// "hopper 256x176 cluster 2 pack 1", "hopper 64x64 split 3 pack 1"
std::string to_string(const AttentionConfig& config);

}  // namespace braid::cuda
