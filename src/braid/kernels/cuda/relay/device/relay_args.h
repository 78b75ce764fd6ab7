#pragma once

#include <vector_types.h>

#include <cstdint>

#include "braid/kernels/cuda/comm/device/comm_view.h"
#include "braid/kernels/cuda/relay/relay_steps.h"

namespace braid::cuda {

constexpr int kRelayMail = 3;

// A launch, passed to the kernel by value.
struct RelayArgs {
  const RelayStep* steps;
  const int64_t* rows;  // live tokens: 0 or 1
  // Words between steps, in turns: {two bf16, tag} per pair of outputs. A tag belongs to a single
  // step in a launch and vouches for the data beside it. Words from three steps before are free:
  // the linear in between had its whole input, so no CTA still reads them.
  uint2* mail[kRelayMail];
  // Words of sums over ranks, from each rank: [2, ranks, sum_pairs] at each rank. A rank overwrites
  // a sum after receiving all words of the next sum: other ranks send those words after reading the
  // older sum.
  uint2* sums[kMaxCommRanks];
  CommView ranks;
  // O', m and l for the heads of each CTA: {two f32, each beside a tag}.
  uint4* parts;       // [ctas, 2, group, D / 2 + 1]
  uint32_t* control;  // [3]: tag before this launch's first, finished CTAs, sums % 2
  int32_t num_steps;
  int32_t slots;
  int32_t x_bytes;
  int32_t num_sums;
  int32_t sum_pairs;
};

}  // namespace braid::cuda
