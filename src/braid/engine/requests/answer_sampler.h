#pragma once

#include <future>
#include <memory>

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

  // Asks for the mask of the next token of a sequence of `ids` on a worker, if there are masks;
  // sample() waits for it. `keep` holds this object until then.
  void prepare(Workers& workers, std::span<const int32_t> ids, std::shared_ptr<const void> keep);
  // Waits for a mask that was asked for.
  void settle() const {
    if (ahead_.valid()) ahead_.wait();
  }
  // The next token of a sequence of `ids`, which begin with the prompt; `logits` [V] are
  // overwritten. A fault of the request's own is in the token's `error`.
  SampledToken sample(std::span<float> logits, std::span<const int32_t> ids);
  // The error of a sequence of `ids` whose logits are not usable.
  Error not_usable(std::span<const int32_t> ids) const;

 private:
  std::span<const uint32_t> mask_of(std::span<const int32_t> generated);
  std::span<const uint32_t> allowed(std::span<const int32_t> generated, size_t vocabulary);

  const AnswerRequest& request_;
  const std::span<const int32_t> ends_;
  const DType kv_dtype_;
  Sampler sampler_;
  std::future<std::span<const uint32_t>> ahead_;  // asked for
  size_t ahead_of_ = 0;                           // generated tokens of ahead_
  std::vector<uint32_t> words_;                   // a mask, where ends of generation are forbidden
};

}  // namespace braid
