#pragma once

#include <string>
#include <vector>

#include "braid/kernels/cuda/attention/desc.h"

// Choice of kernel and tiles for a call: desc + lengths -> candidates -> config. Pure host code,
// without a device.
namespace braid::cuda {

enum class AttentionKernel {
  kGeneric,  // mma.sync, any GPU from sm_80
  kHopper,   // wgmma and bulk tensor copies, sm_90a
};

constexpr int kMaxSplit = 8;

// Forms of calls that Hopper kernels serve. Code for further forms costs registers: up to 13% in
// short calls.
enum class HopperForm {
  kWhole,     // calls that start from nothing and finalize
  kCarrying,  // carried states, loaded into and stored from accumulators
  kStaged,    // carried states and rows of O, through shared memory
  kArriving,  // whole calls with keys that arrive during the call
};
constexpr bool carries_state(HopperForm form) {
  return form == HopperForm::kCarrying || form == HopperForm::kStaged;
}

// Whether this form's kernels take the call's keys as they come: at once, or in stages.
bool takes_stages_of(HopperForm form, const AttentionParams& params);

struct AttentionConfig {
  AttentionKernel kernel = AttentionKernel::kGeneric;
  int block_m = 0;      // rows of a tile, over a CTA or a cluster
  int block_n = 0;      // keys of a tile
  int ctas_per_sm = 1;  // CTAs that fit on an SM
  int cluster = 1;      // CTAs that share key tiles
  int split = 1;        // CTAs among which an item's keys are split, at most kMaxSplit
  int pack = 1;         // query heads of a KV head in a tile's rows
  HopperForm form = HopperForm::kWhole;  // kHopper's
  double cost_us = 0;                    // the estimate that `choose` compares
  bool operator==(const AttentionConfig&) const = default;
};

// The device, as far as the choice depends on it.
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

// A thread's registers for an item that is left, in units of 16 bytes: accumulators (heads with 64
// columns have eight more, for row sums), row maxima, and the thread's part of row sums.
constexpr int sum_units(int head_dim_v) {
  return (head_dim_v + (head_dim_v == 64 ? 8 : 0)) / 8 + 1;
}

// Device memory for left items and their sums, in a call with arriving keys: for a single item, and
// for as many as the CTAs may leave at once.
constexpr size_t kHeldItemBytes = 32;
size_t attention_sums_bytes(const AttentionDesc& desc, const AttentionConfig& config);
size_t attention_sums_bytes(const AttentionDesc& desc, const AttentionParams& params,
                            const AttentionConfig& config, const AttentionDevice& device);

// "hopper 256x176 cluster 2 pack 1", "hopper 64x64 split 3 pack 1"
std::string to_string(const AttentionConfig& config);

}  // namespace braid::cuda
