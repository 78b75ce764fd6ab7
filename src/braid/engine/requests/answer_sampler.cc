#include "braid/engine/requests/answer_sampler.h"

namespace braid {

AnswerSampler::AnswerSampler(const AnswerRequest& request, std::span<const int32_t> ends,
                             DType kv_dtype)
    : request_(request), ends_(ends), kv_dtype_(kv_dtype), sampler_(request.sampling) {}

void AnswerSampler::prepare(Workers& workers, std::span<const int32_t> ids,
                            std::shared_ptr<const void> keep) {
  const std::span<const int32_t> generated = ids.subspan(request_.prompt.size());
  if (!request_.mask || ahead_.valid()) return;
  const auto task = std::make_shared<std::packaged_task<std::span<const uint32_t>()>>(
      [this, list = std::vector(generated.begin(), generated.end())] {
        return request_.mask(list);
      });
  ahead_ = task->get_future();
  ahead_of_ = generated.size();
  workers.push([task, keep = std::move(keep)] { (*task)(); });
}

// One call at a time.
std::span<const uint32_t> AnswerSampler::mask_of(std::span<const int32_t> generated) {
  if (!request_.mask) return {};
  if (ahead_.valid()) {
    const std::span<const uint32_t> mask = ahead_.get();
    if (ahead_of_ == generated.size()) return mask;
  }
  return request_.mask(generated);
}

SampledToken AnswerSampler::sample(std::span<float> logits, std::span<const int32_t> ids) {
  const std::span<const int32_t> generated = ids.subspan(request_.prompt.size());
  if (!usable(logits)) {
    return {.error = not_usable(ids)};
  }
  try {
    if (request_.sampling.temperature > 0) sampler_.set_place(std::ssize(generated));
    return sampler_.sample(logits, request_.prompt, generated, allowed(generated, logits.size()));
  } catch (const Error& error) {
    return {.error = error};
  }
}

Error AnswerSampler::not_usable(std::span<const int32_t> ids) const {
  return not_numbers(fmt::format("token {} of the answer", ids.size() - request_.prompt.size() + 1),
                     std::ssize(ids), kv_dtype_);
}

std::span<const uint32_t> AnswerSampler::allowed(std::span<const int32_t> generated,
                                                 size_t vocabulary) {
  const std::span<const uint32_t> mask = mask_of(generated);
  if (std::ssize(generated) >= request_.min_tokens) return mask;
  if (mask.empty()) {
    words_.assign((vocabulary + 31) / 32, ~uint32_t{0});
  } else {
    words_.assign(mask.begin(), mask.end());
  }
  for (const std::span<const int32_t> list : {ends_, std::span<const int32_t>(request_.stop_ids)}) {
    for (const int32_t id : list) {
      words_[static_cast<size_t>(id / 32)] &= ~(uint32_t{1} << (id % 32));
    }
  }
  return words_;
}

}  // namespace braid
