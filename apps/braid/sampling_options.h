#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "braid/engine/sampling.h"

namespace braid::app {

// --temperature and related options, as far as given.
struct SamplingOptions {
  std::optional<float> temperature, top_p, min_p;
  std::optional<float> repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
  std::optional<int> logprobs;

  void add_to(CLI::App& command);
  // These options over a model's own. Fails with kInvalidArgument, naming the option, its value and
  // limits.
  SamplingParams over(SamplingParams defaults) const;
};

}  // namespace braid::app
