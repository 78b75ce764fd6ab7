#pragma once

#include <string>
#include <vector>

#include "braid/kernels/cuda/decode/desc.h"

// How a decode attention is launched: desc -> candidates -> config. Pure host code.
namespace braid::cuda {

struct DecodeDevice {
  int compute_capability = 90;  // 10 * major + minor
  int num_sms = 132;
  int shared_bytes = 227 << 10;  // that a CTA may use
};

struct DecodeConfig {
  int ctas = 0;   // one on each SM, or two on most
  int warps = 0;  // per CTA; each streams separate keys
  int shared_bytes = 0;
  int64_t workspace_bytes = 0;  // zeros before the first launch and after each launch
  double cost_us = 0;           // the estimate that `choose` compares, at capacity
  bool operator==(const DecodeConfig&) const = default;
};

// Whether these kernels suit a launch with `tokens` tokens: few tokens, or a token per sequence.
// These kernels read a sequence's keys once for 8 rows of queries; prompts' kernels have tiles of
// 64. Decided by capacities, equal for a decode step except for the rounding to ranks.
bool few_tokens_each(int64_t tokens, int64_t sequences);

// Everything that computes the call, in a fixed order.
std::vector<DecodeConfig> candidates(const DecodeDesc& desc, const DecodeDevice& device);

// The candidate with the least estimated cost; of equals the first.
DecodeConfig choose(const DecodeDesc& desc, const DecodeDevice& device);

// "132 CTAs of 8 warps, 163 KB shared, 2157 KB workspace"
std::string to_string(const DecodeConfig& config);

}  // namespace braid::cuda
