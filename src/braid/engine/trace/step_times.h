#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>

#include "braid/engine/requests/non_negative_fit.h"

namespace braid {

// A sequence's part in a step, as far as the step's time depends on it.
struct TimedRow {
  int64_t tokens = 0;   // computed by the step
  int64_t cached = 0;   // keys before them
  int group = 0;        // ranks with the sequence's keys, if groups have separate keys; -1: divided
  bool decode = false;  // a token of an answer
  int64_t scored = 1;   // last tokens with wanted logits
  bool approximate = false;          // of a sequence whose prompt leaves far keys out
  std::span<const int32_t> pages{};  // of the sequence, where a step's time depends on them
};

// Seconds that a step takes on some ranks.
class StepTimes {
 public:
  virtual ~StepTimes() = default;
  virtual double seconds(std::span<const TimedRow> rows) = 0;
  // Of the seconds given last those in which the step waits for its plan.
  virtual double planning() const { return 0; }
};

// An engine's times, linear in a step's tokens and keys and fitted to all steps alike. Steps of
// answers alone, which read weights and keys, and steps with tokens of prompts, which multiply,
// have a fit each. A key has two prices: tokens of a prompt share the read of a key, a token of an
// answer reads each key alone. For any thread.
class FittedTimes final : public StepTimes {
 public:
  // A step that ran.
  void add(std::span<const TimedRow> rows, double seconds);
  // Forgets all steps.
  void clear();

  double seconds(std::span<const TimedRow> rows) override;

 private:
  // Of a step: 1, tokens, keys of the prompts' tokens, keys of the answers' tokens.
  using Fit = NonNegativeFit<4>;
  struct Kind {
    Fit fit;
    Fit::Numbers cost{};
    bool known = false;    // a step was added
    bool current = false;  // `cost` holds all steps
  };

  std::mutex mutex_;
  std::array<Kind, 2> kinds_;  // answers alone; steps with tokens of prompts
};

}  // namespace braid
