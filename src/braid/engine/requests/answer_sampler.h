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

// Chooses the tokens of one answer as its request says: sampling, mask, and the tokens that cannot
// come before min_tokens.
class AnswerSampler {
 public:
  // `request` outlives it. `ends`: the vocabulary's end-of-generation ids. `kv_dtype`: the cache's,
  // for messages.
  AnswerSampler(const AnswerRequest& request, std::span<const int32_t> ends, DType kv_dtype);

  // Asks a worker for the mask of the next token of a sequence of `ids`, if there are masks and the
  // mask was not asked for before. `keep` holds this object until then; the worker calls `made`
  // when the mask is there.
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
  // The mask of the next token of a sequence of `ids`, which was asked for and is waited for;
  // empty: all may come. Fails with the Error of the request's own function, each time.
  std::span<const uint32_t> mask(std::span<const int32_t> ids);
  // The next token of a sequence of `ids`, which begin with the prompt; `logits` [V] are
  // overwritten. A fault of the request's own is in the token's `error`.
  SampledToken sample(std::span<float> logits, std::span<const int32_t> ids);
  // The error of a sequence of `ids` whose logits are not usable.
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
  std::vector<uint32_t> words_;                   // a mask, where ends of generation are forbidden
};

}  // namespace braid
