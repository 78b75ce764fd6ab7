#include "braid/engine/requests/answer_sampler.h"

namespace braid {

AnswerSampler::AnswerSampler(const AnswerRequest& request, std::span<const int32_t> ends,
                             DType kv_dtype)
    : request_(request), ends_(ends), kv_dtype_(kv_dtype), sampler_(request.sampling) {}

void AnswerSampler::prepare(Workers& workers, std::span<const int32_t> ids,
                            std::shared_ptr<const void> keep, std::function<void()> made) {
  if (!request_.mask || asked_ == ids.size()) return;
  BRAID_CHECK(settled(), "a mask is asked for while another one is made");
  const std::span<const int32_t> generated = ids.subspan(request_.prompt.size());
  const auto task = std::make_shared<std::packaged_task<std::span<const uint32_t>()>>(
      [this, list = std::vector(generated.begin(), generated.end())] {
        return request_.mask(list);
      });
  ahead_ = task->get_future();
  asked_ = ids.size();
  workers.push([task, keep = std::move(keep), made = std::move(made)] {
    (*task)();
    made();
  });
}

// One call at a time.
std::span<const uint32_t> AnswerSampler::mask(std::span<const int32_t> ids) {
  if (!request_.mask) return {};
  BRAID_CHECK(asked_ == ids.size(), "nobody asked for the mask of token {}", ids.size());
  if (ahead_.valid()) {
    mask_ = {};
    mask_error_.reset();
    try {
      mask_ = ahead_.get();
    } catch (const Error& error) {
      mask_error_ = error;
    } catch (const std::exception& error) {
      mask_error_ = Error(ErrorCode::kInvalidArgument,
                          fmt::format("the mask of the next token: {}", error.what()));
    }
  }
  if (mask_error_) throw Error(*mask_error_);
  return mask_;
}

SampledToken AnswerSampler::sample(std::span<float> logits, std::span<const int32_t> ids) {
  const std::span<const int32_t> generated = ids.subspan(request_.prompt.size());
  if (!request_.mask && std::ssize(generated) >= request_.min_tokens &&
      sampler_.takes_most_likely()) {
    const int32_t id = most_likely_token(logits);
    return id < 0 ? SampledToken{.error = not_usable(ids)} : SampledToken{.id = id};
  }
  if (!usable(logits)) {
    return {.error = not_usable(ids)};
  }
  try {
    if (request_.sampling.temperature > 0) sampler_.set_place(std::ssize(generated));
    return sampler_.sample(logits, request_.prompt, generated, allowed(ids, logits.size()));
  } catch (const Error& error) {
    return {.error = error};
  }
}

Error AnswerSampler::not_usable(std::span<const int32_t> ids) const {
  return not_numbers(fmt::format("token {} of the answer", ids.size() - request_.prompt.size() + 1),
                     std::ssize(ids), kv_dtype_);
}

std::span<const uint32_t> AnswerSampler::allowed(std::span<const int32_t> ids, size_t vocabulary) {
  const std::span<const uint32_t> mask = this->mask(ids);
  if (std::ssize(ids) - std::ssize(request_.prompt) >= request_.min_tokens) return mask;
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
