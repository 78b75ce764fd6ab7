#include "braid/engine/requests/request_steps.h"

#include "braid/base/clock.h"
#include "braid/base/error.h"

namespace braid {
namespace {

void score_prompt(ActiveRequest& request, const StepRow& row, const TensorView& logits,
                  int64_t first) {
  const std::vector<int32_t>& prompt = request.request.prompt;
  if (row.begin == 0) request.prompt.clear();  // it was preempted, and begins again
  for (int64_t i = 0; i < row.scored; ++i) {
    const int64_t next = row.end - row.scored + i + 1;
    const std::span<const float> values(logits.row_as<float>(first + i),
                                        static_cast<size_t>(logits.cols()));
    if (request.request.on_logits) request.request.on_logits(next - 1, values);
    if (next >= std::ssize(prompt) || request.request.prompt_logprobs < 0) continue;
    request.prompt.push_back(log_probability(values, prompt[static_cast<size_t>(next)],
                                             request.request.prompt_logprobs));
  }
}

}  // namespace

RequestSteps::RequestSteps(std::unique_ptr<StepQueue> queue, Scheduler& scheduler,
                           int64_t page_size, const std::vector<int32_t>& ends)
    : queue_(std::move(queue)),
      scheduler_(scheduler),
      ends_(ends),
      batch_(page_size),
      slots_(queue_->slots()),
      window_(queue_->depth()) {}

void RequestSteps::leave(ActiveRequest& request) {
  if (request.slot < 0) return;
  queue_->leave(request.slot);
  slots_.give_back(request.slot);
  request.slot = -1;
}

void RequestSteps::join(ActiveRequest& request, std::span<const int32_t> generated) {
  if (request.slot >= 0 || request.request.mask) return;
  request.slot = slots_.take();
  if (request.slot < 0 || queue_->join(request.slot, {request.request, generated, ends_})) return;
  slots_.give_back(request.slot);
  request.slot = -1;
}

PutStep RequestSteps::put(const Step& step, const ActiveRequests& active) {
  const double begin = steady_seconds();
  StepUnderWay under_way{.step = step};
  batch_.clear();
  for (const StepRow& row : step.rows) {
    const std::vector<int32_t>& ids = scheduler_.sequence(row.id).ids;
    ActiveRequest& request = *active.at(row.id);
    if (request.facts.times.begin == 0) {
      request.facts.times.begin = begin;
      request.facts.cached_tokens = scheduler_.cached_tokens(row.id);
    }
    const auto row_begin = static_cast<size_t>(row.begin);
    const int32_t newest = -1 - request.slot;  // of a slot, before the host knows it
    batch_.add(ids[row_begin] == kPendingToken
                   ? std::span(&newest, 1)
                   : std::span(ids).subspan(row_begin, static_cast<size_t>(row.end - row.begin)),
               row.begin, scheduler_.pages_of(row.id), row.scored);
    const bool scores = request.request.scores_prompt() && request.facts.times.first_token == 0;
    under_way.row_slots.resize(under_way.row_slots.size() + static_cast<size_t>(row.scored), -1);
    if (row.sample) {
      join(request, std::span(ids).subspan(request.request.prompt.size()));
      under_way.row_slots.back() = request.slot;
    }
    under_way.for_host |= scores || (row.sample && request.slot < 0);
  }
  const double put_in = steady_seconds();
  try {
    queue_->put(batch_, under_way.row_slots);
  } catch (const std::exception& error) {
    if (!queue_->usable()) throw;
    return {.waited = 0, .refused = Error(ErrorCode::kAborted, error.what())};
  }
  const double waited = queue_->depth() == 1 ? steady_seconds() - put_in : 0;
  scheduler_.step_put(step);
  window_.put(std::move(under_way));
  return {.waited = waited, .refused = {}};
}

EndedRequests RequestSteps::take(const ActiveRequests& active) {
  const StepUnderWay under_way = window_.take();
  const EndedStep step = queue_->take();
  EndedRequests ended{.step = under_way.step,
                      .seconds = step.seconds,
                      .waited = queue_->depth() > 1 ? step.waited : 0};
  const double begin = steady_seconds();
  ended.tokens = tokens_of(under_way, step.tokens, active);
  ended.sample_seconds = steady_seconds() - begin;
  std::vector<int32_t> ids;
  for (const SampledToken& token : ended.tokens) ids.push_back(token.id);
  scheduler_.step_done(ended.step, ids);
  return ended;
}

// Of the rows that sample, in order.
std::vector<SampledToken> RequestSteps::tokens_of(const StepUnderWay& under_way,
                                                  std::span<const SlotToken> by_slot,
                                                  const ActiveRequests& active) {
  const TensorView logits =
      under_way.for_host && !under_way.row_slots.empty() ? queue_->logits() : TensorView{};
  std::vector<SampledToken> tokens;
  int64_t next = 0;  // row of the logits
  auto of_slot = by_slot.begin();
  for (const StepRow& row : under_way.step.rows) {
    const auto it = active.find(row.id);
    ActiveRequest* const request = it == active.end() ? nullptr : it->second.get();
    if (request != nullptr && request->request.scores_prompt() &&
        request->facts.times.first_token == 0) {
      score_prompt(*request, row, logits, next);
      if (request->request.on_logit_rows) {
        request->request.on_logit_rows(
            row.end - row.scored, slice_rows(queue_->device_logits(), next, next + row.scored));
      }
    }
    next += row.scored;
    if (!row.sample) continue;
    const bool slotted = under_way.row_slots[static_cast<size_t>(next - 1)] >= 0;
    const SlotToken* const sampled = slotted ? &*of_slot++ : nullptr;
    if (request == nullptr) {
      tokens.emplace_back();
      continue;
    }
    const std::span ids(scheduler_.sequence(row.id).ids.data(), static_cast<size_t>(row.end));
    if (sampled == nullptr) {
      const std::span last(logits.row_as<float>(next - 1), static_cast<size_t>(logits.cols()));
      tokens.push_back(request->sampler.sample(last, ids));
      continue;
    }
    tokens.push_back(sampled->token);
    const AnswerRequest& r = request->request;
    const bool all_may_come = r.sampling.logit_bias.empty() && r.min_tokens == 0;
    if (sampled->fault == SlotToken::Fault::not_numbers ||
        (sampled->fault == SlotToken::Fault::none_allowed && all_may_come)) {
      tokens.back().error = request->sampler.not_usable(ids);
    } else if (sampled->fault == SlotToken::Fault::none_allowed) {
      tokens.back().error = Error(ErrorCode::kInvalidArgument, std::string(kNoTokenAllowed));
    }
  }
  return tokens;
}

}  // namespace braid
