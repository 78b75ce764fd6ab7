#pragma once

#include <functional>
#include <span>
#include <vector>

#include "braid/engine/sampling.h"
#include "braid/tensor/dtype.h"

namespace braid {

// Tokens that may come next, given the generated tokens so far: id i is bit i % 32 of word i / 32,
// ceil(V / 32) words, valid until the next call.
using TokenMask = std::function<std::span<const uint32_t>(std::span<const int32_t> generated)>;

// A sequence to continue, token by token. Its whole prompt is in the KV cache.
struct LoopSequence {
  std::span<const int32_t> prompt;
  SamplingParams sampling;
  // Grows and returns the pages for `tokens` tokens, in order. May be called a token ahead.
  std::function<std::span<const int32_t>(int64_t tokens)> hold;
  TokenMask mask;  // empty: all tokens may come
  int group = -1;  // as Batch::add has it
};

// A place in a loop, held by a sequence: a row in each step's batch, and all that the loop keeps of
// the sequence. A sequence begins when its slot is made, and ends with the loop or by an error in
// that sequence.
struct LoopSlot {
  explicit LoopSlot(const LoopSequence& s) : sequence(s) {}

  LoopSequence sequence;
  std::vector<int32_t> generated;  // tokens that were handed out

  // Tokens in the prompt and in the answer so far.
  int64_t tokens() const { return std::ssize(sequence.prompt) + std::ssize(generated); }
};

struct LoopRequest {
  std::vector<LoopSequence> sequences;  // at least one, in the last step's batch order
  int64_t limit = 0;                    // steps that may be asked for
  int mask_deadline_ms = 1000;          // from a step's logits to its masks, on a device
  bool trace = false;                   // keep when each step was put in and ran
  // Of the KV cache; the runner sets both.
  DType kv_dtype = DType::f32;  // for errors
  int64_t page_size = 0;
};

// The error (kMalformed) of a sequence whose logits after `tokens` tokens are not usable
// (sampling.h). The message names `place`, such as "step 3", and the likely cause.
Error not_numbers(std::string_view place, int64_t tokens, DType kv_dtype);

// When a step was put in, waited for, and ran; seconds of the steady clock.
struct LoopStep {
  double enqueue_begin = 0;  // the host, as it puts the step in
  double enqueue_end = 0;
  double wait_begin = 0;  // the host's begin of asking for tokens
  double wait_end = 0;
  double device_begin = 0;  // the device's begin of computing
  double device_end = 0;
};

// Counts of a loop on a device. A loop on the host has none.
struct LoopStats {
  int64_t positions = 0;        // tokens read, or in the device's queue
  int64_t steps = 0;            // that were replayed
  double cpu_us = 0;            // the host thread's time for each step, without waits
  int64_t launches = 0;         // of a rank in each step
  std::vector<LoopStep> trace;  // all steps, if asked for
};

// Source of next tokens: steps over slots, a token for each slot's sequence per step. Slots are
// made with the loop, a slot for each sequence of the request; a finished sequence keeps its slot
// until the loop ends, and its tokens are dropped. An error ends a single sequence, stays on all
// its later tokens, and lets the others go on: logits beyond numbers (kMalformed), a mask that
// allows no token (kInvalidArgument), throws an Error, or comes too late for a device
// (kDeadline).
class TokenLoop {
 public:
  explicit TokenLoop(LoopRequest request);
  virtual ~TokenLoop() = default;
  // A token of each slot, or the slot's error, valid until the next call; at most `limit` times.
  virtual std::span<const SampledToken> next() = 0;
  virtual LoopStats stats() const { return {}; }

 protected:
  // The error of a slot with unusable next logits.
  Error not_numbers(const LoopSlot& slot) const;
  // The tokens of this step go into the slots, and to the caller.
  std::span<const SampledToken> hand_out();

  const LoopRequest request_;
  std::vector<LoopSlot> slots_;       // [S] of the request's sequences, in order
  std::vector<SampledToken> tokens_;  // [S] of this step
};

}  // namespace braid
