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

struct AttentionConfig {
  AttentionKernel kernel = AttentionKernel::kGeneric;
  int block_m = 0;      // rows of a tile: a CTA's, or those of a cluster's CTAs together
  int block_n = 0;      // keys of a tile
  int ctas_per_sm = 1;  // that fit together
  int cluster = 1;      // CTAs that share key tiles
  int split = 1;        // CTAs among which an item's keys are split, at most kMaxSplit
  int pack = 1;         // query heads of a KV head that share a tile's rows
  bool staged = false;  // rows of O and carried states pass through shared memory
  double cost_us = 0;   // the estimate that `choose` compares
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

// "hopper 256x176 cluster 2 pack 1", "hopper 64x64 split 3 pack 1"
std::string to_string(const AttentionConfig& config);

}  // namespace braid::cuda
