#pragma once

#include <array>
#include <string>
#include <string_view>

#include "braid/kernels/cuda/cluster/exchange.h"

namespace braid::cuda {

// A GPU's rates in decode steps: seconds and bytes, fitted to measurements by
// tools/fit_decode_rates.py (docs/cluster-fusion.md).
struct DecodeRates {
  double stream = 0;        // bytes a second, read by all SMs
  double ring_bytes = 0;    // over all SMs
  double relay_seam = 0;    // between two steps of a relay
  double relay_bare = 0;    // additional, behind a step without bytes to cover the seam
  double launch_seam = 0;   // between two launches
  double panel_seam = 0;    // the same where products are panels and norms launches
  double fused_seam = 0;    // for a fused block, without CTAs
  double fused_cta = 0;     // for each CTA of a cluster
  double fused_wave = 0;    // for each further wave of clusters
  double fused_batch = 0;   // additional, for the kernel of several tokens
  double parts_seam = 0;    // for words between the clusters of a KV head
  double scores_sum = 0;    // per sum of scores over a cluster that divides heads
  double scores_group = 0;  // with several query heads, times log2 of the CTAs
  double words_seam = 0;    // for attention's result on the way to the projection
  double memory_share = 0;  // share of a block's seam that exchanges through memory add
  double cta_stream = 0;    // bytes of weights a second, read by a CTA
  double cta_keys[4] = {};  // the same for keys, with 1, 2 and 4 query heads; of several tokens
  // Clusters of each size that run at once, for an absent GPU; [0] unused.
  std::array<int, kMaxCluster + 1> clusters = {};
  std::string unmeasured;  // the name of a GPU without measured constants; empty: measured
  bool operator==(const DecodeRates&) const = default;
};

// A GPU's constants by its name, as "NVIDIA H100 80GB HBM3", from profiles/decode, with the stream
// of the GPU at hand. Other GPUs get an H100's constants, and their names go into `unmeasured`.
DecodeRates decode_rates(std::string_view gpu, double stream);

// The same for an absent GPU: `stream` counts for unmeasured GPUs alone.
DecodeRates absent_decode_rates(std::string_view gpu, double stream);

// Reads a file in profiles/decode. Fails with kMalformed: origin, field and the allowed values.
DecodeRates parse_decode_rates(std::string_view json, std::string_view origin);

}  // namespace braid::cuda
