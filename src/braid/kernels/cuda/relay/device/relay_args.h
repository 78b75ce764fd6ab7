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
  // What steps hand on, in turns: {two bf16, tag} for each pair of outputs. A tag is of one step of
  // one launch: where it is seen, so is what stands beside it. Nobody still reads what a step
  // writes over: that is from three steps before, and the linear in between had all of its input.
  uint2* mail[kRelayMail];
  // The same of what ranks add up, from each of them: [2, ranks, sum_pairs] at each rank. A rank
  // writes over a sum once it had all words of the next one: those were sent by CTAs that had read
  // it.
  uint2* sums[kMaxCommRanks];
  CommView ranks;
  // O', m and l of each CTA's heads: {two f32, each with its tag}.
  uint4* parts;       // [ctas, 2, group, D / 2 + 1]
  uint32_t* control;  // [3]: the tag before this launch's first, CTAs that are done, sums % 2
  int32_t num_steps;
  int32_t slots;
  int32_t x_bytes;
  int32_t num_sums;
  int32_t sum_pairs;
};

}  // namespace braid::cuda
