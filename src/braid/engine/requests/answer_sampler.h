#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>

#include "braid/engine/requests/answer.h"
#include "braid/engine/requests/workers.h"
#include "braid/tensor/dtype.h"

namespace braid {

// Chooses an answer's tokens by its request: sampling, mask, and tokens that cannot come before
// min_tokens.
class AnswerSampler {
 public:
  // `request` outlives it. `ends`: the vocabulary's end-of-generation ids. `kv_dtype`: the cache's,
  // for messages.
  AnswerSampler(const AnswerRequest& request, std::span<const int32_t> ends, DType kv_dtype);

  // Asks a worker for the mask of the token behind `ids`, unless it was asked for before or the
  // request has no masks. `keep` holds this object until then; the worker calls `made` when the
  // mask is ready.
  void prepare(Workers& workers, std::span<const int32_t> ids, std::shared_ptr<const void> keep,
               std::function<void()> made);
  // Whether no worker makes a mask; settle() waits for this.
  bool settled() const { return settled_by(std::chrono::steady_clock::now()); }
  bool settled_by(std::chrono::steady_clock::time_point time) const {
    return !ahead_.valid() || ahead_.wait_until(time) == std::future_status::ready;
  }
  void settle() const {
    if (ahead_.valid()) ahead_.wait();
  }
  // Waits for the requested mask of the token behind `ids`; empty: every token may come. Fails each
  // time with the Error of the request's own function.
  std::span<const uint32_t> mask(std::span<const int32_t> ids);
  // The token behind `ids`, which begin with the prompt; `logits` [V] are overwritten. The token's
  // `error` holds a fault of the request's own.
  SampledToken sample(std::span<float> logits, std::span<const int32_t> ids);
  // The error for unusable logits behind `ids`.
  Error not_usable(std::span<const int32_t> ids) const;

 private:
  std::span<const uint32_t> allowed(std::span<const int32_t> ids, size_t vocabulary);

  const AnswerRequest& request_;
  const std::span<const int32_t> ends_;
  const DType kv_dtype_;
  Sampler sampler_;
  std::future<std::span<const uint32_t>> ahead_;  // asked for
  size_t asked_ = 0;                              // tokens that the newest mask follows
  std::span<const uint32_t> mask_;                // the newest, once taken from ahead_
  std::optional<Error> mask_error_;               // likewise
  std::vector<uint32_t> words_;                   // a mask that forbids ends of generation
};

}  // namespace braid
