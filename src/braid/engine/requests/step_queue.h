#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/engine/batch.h"
#include "braid/engine/requests/answer.h"

namespace braid {

struct Step;

// Limits of a StepQueue.
struct StepQueueOptions {
  int64_t sequences = 32;     // most sequences in a step, and number of slots
  int64_t step_tokens = 512;  // of a step that sequences share
  int64_t rows = 96;          // of logits
  int64_t context = 0;        // tokens per sequence
  int64_t vocabulary = 0;     // columns of logits
  int64_t graph_bytes = 0;    // device memory for plans and graphs made before the first step
  bool on_host = false;       // sample on the host even if the device can sample
  std::function<void(const std::string& line)> say;  // progress lines; may be empty
  // Called by the loop's thread as a step ends, with the ranks' time; may be empty.
  std::function<void(const Step& step, double seconds)> on_step;
};

// A sequence for a slot: its tokens so far, and rules for choosing further tokens.
struct SlotSequence {
  const AnswerRequest& request;
  std::span<const int32_t> generated;  // behind the prompt
  std::span<const int32_t> ends;       // forbidden before request.min_tokens
};

// A token, or the reason for a missing token.
struct SlotToken {
  enum class Fault : uint8_t { none, not_numbers, none_allowed };

  SampledToken token;
  Fault fault = Fault::none;
};

struct EndedStep {
  std::span<const SlotToken> tokens;  // for rows with a slot, in order; valid until the next take()
  double seconds = 0;                 // the step's time on the ranks
  double waited = 0;                  // part of `seconds` spent waiting in put() and take()
};

// Runs steps in the order of put(). If a device samples, each sequence has a slot on the device,
// and a step may be put in before the host knows the step's first tokens. Not thread-safe.
class StepQueue {
 public:
  virtual ~StepQueue() = default;

  // Steps that may be under way at once.
  virtual int depth() const = 0;
  // Number of slots on the device for sequences sampled by the device; 0: the host samples.
  virtual int64_t slots() const = 0;

  // Gives a free slot to a sequence from the next step on; steps of the slot's former sequence may
  // still be under way. False: the device cannot sample for this sequence, the host must.
  virtual bool join(int32_t slot, const SlotSequence& sequence) = 0;
  virtual void leave(int32_t slot) = 0;
  // Sets the tokens allowed in the slot's next step; empty: all. A sequence with masks needs
  // allow() before every put(), after take() of the slot's former token.
  virtual void allow(int32_t slot, std::span<const uint32_t> mask) = 0;

  // Puts in a step. `row_slots` [R]: the slot sampled from each row of logits, or -1. A token id
  // of -1 - s in the batch stands for slot s's newest token. At most depth() steps are under way.
  virtual void put(const Batch& batch, std::span<const int32_t> row_slots) = 0;
  // After a failed put(): whether the queue still works, as after a refused strategy.
  virtual bool usable() const = 0;
  // As of Runner: of all steps, and of the step put in last.
  virtual std::optional<Approximation> approximation() const { return {}; }
  virtual std::optional<Approximation> last_approximation() const { return {}; }
  // Waits for the oldest step. Fails as Runner::step does.
  virtual EndedStep take() = 0;
  // Logits f32 [R, V] of the step taken last, in host memory. Requires: no step is under way.
  virtual TensorView logits() = 0;
  // The same logits in the memory of rank 0's device, valid until the next put().
  virtual TensorView device_logits() = 0;

  // Number of plans, graphs and allocations made after the queue's construction: 0 unless a step
  // exceeded the prepared sizes, or thinned its keys.
  virtual int64_t late_preparations() const { return 0; }
};

}  // namespace braid
