#pragma once

#include <functional>
#include <map>

#include "braid/engine/trace/step_times.h"

namespace braid {

// Simulated seconds for each kind of step; a probe costs a plan and a simulation.
struct StepProbes {
  // A prompt with `tokens` tokens behind `cached` tokens, by dense attention.
  std::function<double(int64_t tokens, int64_t cached)> prompt;
  // The same by level attention; empty: prompts are dense.
  std::function<double(int64_t tokens)> thinned;
  // `sequences` sequences that each decode a token behind `keys` keys.
  std::function<double(int64_t sequences, int64_t keys)> decode;
};

// Times for any step from a few simulations, made at need and kept: for powers of two of tokens
// and sequences, at two depths each; times in between are linear. A step's products count all
// tokens; attention counts pairs in prompts and keys in decodes apart. `lanes`: ranks that decode
// their own sequences beside each other (TimedRow::group): the slowest counts; 1: all ranks decode
// together.
class SimulatedTimes final : public StepTimes {
 public:
  SimulatedTimes(StepProbes probes, int lanes) : probes_(std::move(probes)), lanes_(lanes) {}
  double seconds(std::span<const TimedRow> rows) override;

 private:
  struct Prompt {
    double products = 0;  // seconds without attention
    double pair = 0;      // of a pair with a cached key
    double own = 0;       // of a pair within the prompt
  };
  struct Decode {
    double step = 0;  // seconds without keys
    double key = 0;   // of a key
  };
  const Prompt& prompt_at(int64_t tokens);
  const Decode& decode_at(int64_t sequences);
  Prompt prompt_of(double tokens);
  Decode decode_of(double sequences);

  const StepProbes probes_;
  const int lanes_;
  std::map<int64_t, Prompt> prompts_;
  std::map<int64_t, Decode> decodes_;
};

}  // namespace braid
