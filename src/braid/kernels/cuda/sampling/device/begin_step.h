#pragma once

#include <cstdint>

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/sampling/params.h"

namespace braid::cuda {

// A sequence that takes a slot: its parameters, and its state behind its present tokens.
struct SlotJoin {
  int32_t slot = 0;
  int32_t counts_row = -1;  // of SampleCall::counts; -1: none
  int32_t first_bias = 0;   // in BeginStep::biases, of params.num_biases
  SamplerParams params;
  SamplerState state;
};

// The host's orders for a step's sampling, in pinned memory, unchanged until the step has taken
// them up.
struct StepSampling {
  int64_t tokens = 0;
  int64_t rows = 0;  // of logits
  int32_t joins = 0;
};

// Begins a step whose tokens are sampled by slot: sequences that join take their slots, the rows'
// slots are copied, and tokens that the host did not know yet are put into the step's inputs.
struct BeginStep {
  // Pinned host memory.
  const StepSampling* sampling = nullptr;
  const int32_t* row_slots_in = nullptr;  // [R]
  const SlotJoin* joins = nullptr;        // [sampling->joins]
  const SampleBias* biases_in = nullptr;  // of all joins
  uint2* taken = nullptr;                 // u64: step + 1 once the step has read all fields
  // Device memory.
  uint64_t* step = nullptr;              // += 1
  int64_t* rows = nullptr;               // SampleCall::rows
  int32_t* row_slots = nullptr;          // [R]: SampleCall::slots
  SamplerParams* params = nullptr;       // [slots]
  SamplerState* states = nullptr;        // [slots]
  int32_t* counts_rows = nullptr;        // [slots]
  SampleBias* biases = nullptr;          // [slots, kMaxBiases]
  const int32_t* slot_tokens = nullptr;  // [slots]
  int32_t slots = 0;
  int32_t* token_ids = nullptr;  // [T]: -1 - s becomes slot_tokens[s]
};

// One small kernel; capturable.
void begin_step(const BeginStep& call, LaunchContext context);

}  // namespace braid::cuda
