#pragma once

#include <optional>
#include <string>

#include "braid/engine/generate.h"

namespace braid {

// Ranks that divide the tokens of a prompt, on how many emulated machines ranks are, and far keys
// that prompts leave out, as a user names them.
struct SequenceRequest {
  std::string mode;             // ring, ulysses, usp, tas, torus or auto; empty: none
  std::optional<int> ranks;     // for `mode`; none: the device's GPUs, or all of this machine's
  std::string machines;         // [RACKSx]MACHINESxDEVICES, replaces tp or ranks; empty: one
  SpRequest degrees;            // the named degrees
  Thinning thinning;            // as in RunnerConfig
  bool tp_named = false;        // the user gave tp
  bool schedule_named = false;  // the user gave a schedule

  // Writes the request into `engine`: sp, or the machines of tensor parallelism. This machine has
  // `gpus` usable GPUs. Fails with kInvalidArgument, naming the option, on options that exclude
  // each other.
  void apply(EngineConfig& engine, int gpus) const;
  // On GPUs sp chooses the schedule, where the user gave none; sequential where ranks share a GPU.
  // Fails with kInvalidArgument on another of Braid's strategies for such ranks.
  void choose_schedule(EngineConfig& engine) const;
};

}  // namespace braid
