#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/engine/batch.h"
#include "braid/engine/requests/answer.h"

namespace braid {

// What a queue of steps is made for.
struct StepQueueOptions {
  int64_t sequences = 32;  // of a step at most, and slots
  int64_t step_tokens = 512;
  int64_t rows = 96;        // of logits
  int64_t context = 0;      // tokens of one sequence
  int64_t vocabulary = 0;   // columns of logits
  int64_t graph_bytes = 0;  // of a device's memory, for steps that are made beforehand
  bool on_host = false;     // sample on the host, also where a device could
  std::function<void(const std::string& line)> say;  // what was made; may be empty
};

// A sequence that takes a slot: the tokens that it has, and how the next ones are chosen.
struct SlotSequence {
  const AnswerRequest& request;
  std::span<const int32_t> generated;  // behind the prompt
  std::span<const int32_t> ends;       // forbidden before request.min_tokens
};

// A token, or why there is none.
struct SlotToken {
  enum class Fault : uint8_t { none, not_numbers, none_allowed };

  SampledToken token;
  Fault fault = Fault::none;
};

struct EndedStep {
  std::span<const SlotToken> tokens;  // of rows that have a slot, in order; until the next take()
  double seconds = 0;                 // that the ranks took for the step
  double waited = 0;                  // of these, that put() and take() waited
};

// Steps that are put in one behind the other and end in that order. Where tokens are sampled on a
// device, a sequence has a slot there, and a step may be put in before the tokens that it begins
// with are known to the host. For one thread.
class StepQueue {
 public:
  virtual ~StepQueue() = default;

  // Steps that may be under way at once.
  virtual int depth() const = 0;
  // Number of slots on the device for sequences sampled by the device; 0: the host samples.
  virtual int64_t slots() const = 0;

  // Gives a free slot to a sequence from the next step on; what ran in the slot before may still be
  // under way. False: the sequence asks for what is not there, and the host has to sample for it.
  virtual bool join(int32_t slot, const SlotSequence& sequence) = 0;
  virtual void leave(int32_t slot) = 0;
  // Which tokens the next step may choose in a slot whose sequence has masks; before each such
  // put(), when the slot's token of the step before was taken. Empty: all.
  virtual void allow(int32_t slot, std::span<const uint32_t> mask) = 0;

  // Puts in a step. `row_slots` [R]: whose token comes of each row of logits; -1: none. A token
  // id of -1 - s in the batch is the newest of slot s. At most depth() steps are under way.
  virtual void put(const Batch& batch, std::span<const int32_t> row_slots) = 0;
  // After a put() that failed: whether the queue goes on without that step, as where a strategy
  // was refused.
  virtual bool usable() const = 0;
  // Waits for the oldest step. Fails as Runner::step does.
  virtual EndedStep take() = 0;
  // Logits f32 [R, V] of the step taken last, in the host's memory, if none is under way.
  virtual TensorView logits() = 0;
  // The same logits where rank 0's device keeps them, until the next put().
  virtual TensorView device_logits() = 0;

  // Plans, graphs and memory that were made since the queue was: 0, unless a step did not fit what
  // was made beforehand.
  virtual int64_t late_preparations() const { return 0; }
};

}  // namespace braid
