#include "braid/engine/requests/request_steps.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/base/clock.h"
#include "braid/base/error.h"

namespace braid {
namespace {

constexpr int kMostWorkers = 8;
constexpr std::chrono::microseconds kGrace{300};  // for new masks, while a device has a step to do

// Log-probabilities of a row's prompt, from the second token on.
void score_prompt(ActiveRequest& request, const StepRow& row, const TensorView& logits,
                  int64_t first, Workers& workers) {
  const AnswerRequest& r = request.request;
  if (row.begin == 0) request.prompt.clear();  // it was preempted, and begins again
  const int64_t begin = row.end - row.scored;
  const auto values_of = [&](int64_t i) {
    return std::span(logits.row_as<float>(first + i), static_cast<size_t>(logits.cols()));
  };
  for (int64_t i = 0; r.on_logits && i < row.scored; ++i) r.on_logits(begin + i, values_of(i));
  if (r.prompt_logprobs < 0) return;
  const int64_t n = std::clamp<int64_t>(std::ssize(r.prompt) - 1 - begin, 0, row.scored);
  const size_t before = request.prompt.size();
  request.prompt.resize(before + static_cast<size_t>(n));
  workers.each(static_cast<size_t>(n), [&](size_t i) {
    const auto at = static_cast<int64_t>(i);
    request.prompt[before + i] = log_probability(
        values_of(at), r.prompt[static_cast<size_t>(begin + at + 1)], r.prompt_logprobs);
  });
}

// The token from the device, or the error for its fault.
SampledToken token_of(ActiveRequest& request, std::span<const int32_t> ids,
                      const SlotToken& sampled) {
  SampledToken token = sampled.token;
  const AnswerRequest& r = request.request;
  const bool all_may_come = !r.mask && r.sampling.logit_bias.empty() && r.min_tokens == 0;
  if (sampled.fault == SlotToken::Fault::not_numbers ||
      (sampled.fault == SlotToken::Fault::none_allowed && all_may_come)) {
    token.error = request.sampler.not_usable(ids);
  } else if (sampled.fault == SlotToken::Fault::none_allowed) {
    token.error = Error(ErrorCode::kInvalidArgument, std::string(kNoTokenAllowed));
  }
  return token;
}

}  // namespace

bool takes_long(const AnswerRequest& r) {
  return r.sampling.temperature > 0 || r.sampling.logprobs >= 0 || r.mask;
}

RequestSteps::RequestSteps(std::unique_ptr<StepQueue> queue, Scheduler& scheduler,
                           int64_t page_size, const std::vector<int32_t>& ends,
                           std::function<void()> mask_made)
    : queue_(std::move(queue)),
      scheduler_(scheduler),
      ends_(ends),
      batch_(page_size),
      slots_(queue_->slots()),
      window_(queue_->depth()),
      mask_made_(std::move(mask_made)),
      workers_(std::clamp(cpu::usable_cores() - 1, 1, kMostWorkers)) {}

void RequestSteps::leave(ActiveRequest& request) {
  if (request.slot < 0) return;
  queue_->leave(request.slot);
  slots_.give_back(request.slot);
  request.slot = -1;
}

void RequestSteps::begin(ActiveRequest& request, double time) {
  AnswerEnd& facts = request.facts;
  facts.times.begin = time;
  facts.cached_tokens = scheduler_.cached_tokens(request.id);
  if (facts.cached_tokens == 0 || !scheduler_.approximates(request.id)) return;
  // Cached keys of its kind are approximate, if any prompt so far was.
  const auto so_far = queue_->approximation();
  if (so_far)
    facts.approximate = std::make_shared<Approximation>(Approximation{so_far->levels, {}});
}

void RequestSteps::add_left_out(ActiveRequest& request, const Approximation& made) {
  request.left_out += made.shares;
  if (!request.facts.approximate && !request.left_out.thinned()) return;
  request.facts.approximate =
      std::make_shared<Approximation>(Approximation{made.levels, request.left_out});
}

void RequestSteps::join(ActiveRequest& request, std::span<const int32_t> ids) {
  const bool masked = static_cast<bool>(request.request.mask);
  if (queue_->slots() == 0 || (masked && !request.sampler.settled())) return;
  if (request.slot < 0) {
    request.slot = slots_.take();
    if (request.slot < 0) return;
    const auto generated = ids.subspan(request.request.prompt.size());
    if (!queue_->join(request.slot, {request.request, generated, ends_})) {
      slots_.give_back(request.slot);
      request.slot = -1;
      return;
    }
  }
  if (!masked) return;
  try {
    queue_->allow(request.slot, request.sampler.mask(ids));
  } catch (const Error&) {  // the host meets the error again
    leave(request);
  }
}

std::span<const int32_t> RequestSteps::known_ids(RequestId id) const {
  const std::vector<int32_t>& ids = scheduler_.sequence(id).ids;
  return ids.back() == kPendingToken ? std::span<const int32_t>() : ids;
}

void RequestSteps::wait_for_mask(RequestId id) {
  scheduler_.hold(id);
  if (std::ranges::find(waiting_, id) == waiting_.end()) waiting_.push_back(id);
}

void RequestSteps::prepare(const std::shared_ptr<ActiveRequest>& request) {
  if (!request->request.mask) return;
  request->fresh_mask = true;
  request->sampler.prepare(workers_, known_ids(request->id), request, mask_made_);
}

bool RequestSteps::one_by_one() const {
  if (window_.empty() || queue_->slots() == 0) return false;
  return worth_a_pause(window_.newest(), step_seconds_);
}

std::vector<LateToken> RequestSteps::look(const ActiveRequests& active, const Chosen& chosen) {
  const auto grace = std::chrono::steady_clock::now() + kGrace;
  std::vector<LateToken> tokens;
  // Whether a request goes on waiting.
  const auto waits = [&](RequestId id) {
    const auto it = active.find(id);
    if (it == active.end()) return false;
    ActiveRequest& request = *it->second;
    const bool sampled = request.logits.empty();  // the token that the request waits behind
    const std::span<const int32_t> ids = known_ids(id);
    if (sampled && ids.empty()) return true;
    const bool fresh = std::exchange(request.fresh_mask, false);
    if (!(fresh ? request.sampler.settled_by(grace) : request.sampler.settled())) {
      late_masks_ += fresh ? 1 : 0;
      return true;
    }
    if (sampled) {
      scheduler_.release(id);
      return false;
    }
    const std::vector<int32_t>& all = scheduler_.sequence(id).ids;
    LateToken& late = tokens.emplace_back(LateToken{.id = id, .token = {}});
    late.token = request.sampler.sample(request.logits, std::span(all).first(all.size() - 1));
    request.logits.clear();
    scheduler_.give(id, late.token.id);
    if (!late.token.error) chosen(it->second, late.token);
    if (queue_->slots() > 0) return true;  // for the mask of the token behind
    scheduler_.release(id);
    return false;
  };
  std::erase_if(waiting_, [&](RequestId id) { return !waits(id); });
  return tokens;
}

PutStep RequestSteps::put(const Step& step, const ActiveRequests& active) {
  const double begin = steady_seconds();
  StepUnderWay under_way{.step = step};
  batch_.clear();
  for (const StepRow& row : step.rows) {
    const std::vector<int32_t>& ids = scheduler_.sequence(row.id).ids;
    ActiveRequest& request = *active.at(row.id);
    if (request.facts.times.begin == 0) this->begin(request, begin);
    const auto row_begin = static_cast<size_t>(row.begin);
    const int32_t newest =
        -1 - request.slot;  // stands for the slot's token until the host knows it
    batch_.add(ids[row_begin] == kPendingToken
                   ? std::span(&newest, 1)
                   : std::span(ids).subspan(row_begin, static_cast<size_t>(row.end - row.begin)),
               row.begin, scheduler_.pages_of(row.id), row.scored, scheduler_.group_of(row.id));
    const bool scores = request.request.scores_prompt() && request.facts.times.first_token == 0;
    under_way.row_slots.resize(under_way.row_slots.size() + static_cast<size_t>(row.scored), -1);
    if (row.sample) {
      ++under_way.sampled;
      under_way.masked += request.request.mask ? 1 : 0;
      join(request, std::span(ids).first(static_cast<size_t>(row.end)));
      under_way.row_slots.back() = request.slot;
    }
    under_way.for_host |= scores || (row.sample && request.slot < 0);
  }
  batch_.set_exact(!std::ranges::any_of(
      step.rows, [&](const StepRow& row) { return scheduler_.approximates(row.id); }));
  const double put_in = steady_seconds();
  try {
    queue_->put(batch_, under_way.row_slots);
  } catch (const std::exception& error) {
    if (!queue_->usable()) throw;
    return {.waited = 0, .refused = Error(ErrorCode::kAborted, error.what())};
  }
  if (const auto made = queue_->last_approximation()) {
    add_left_out(*active.at(step.rows[0].id), *made);  // alone in its step
  }
  const double waited = queue_->depth() == 1 ? steady_seconds() - put_in : 0;
  scheduler_.step_put(step);
  for (const StepRow& row : step.rows) {
    // A device's step begins with its masks.
    if (!row.sample || queue_->slots() == 0 || !active.at(row.id)->request.mask) continue;
    wait_for_mask(row.id);
  }
  window_.put(std::move(under_way));
  return {.waited = waited, .refused = {}};
}

EndedRequests RequestSteps::take(const ActiveRequests& active, const Chosen& chosen) {
  const StepUnderWay under_way = window_.take();
  const EndedStep step = queue_->take();
  step_seconds_ = step.seconds;
  for (const auto& [id, request] : active) request->fetch();
  scheduler_.fetch();
  EndedRequests ended{.step = under_way.step,
                      .seconds = step.seconds,
                      .waited = queue_->depth() > 1 ? step.waited : 0};
  const double begin = steady_seconds();
  ended.tokens = tokens_of(under_way, step.tokens, active, chosen);
  if (under_way.for_host) ended.sample_seconds = steady_seconds() - begin;
  std::vector<int32_t> ids;
  for (const SampledToken& token : ended.tokens) ids.push_back(token.id);
  scheduler_.step_done(ended.step, ids);
  return ended;
}

// Requests with late masks keep their logits.
void RequestSteps::choose(std::vector<HostChoice>& choices, std::vector<SampledToken>& tokens,
                          const Chosen& chosen) {
  const auto sample = [&](const HostChoice& choice) {
    SampledToken& token = tokens[choice.token];
    token = choice.request->sampler.sample(choice.logits, choice.ids);
    if (!token.error) chosen(choice.request, token);
  };
  const auto late = [](const HostChoice& c) { return !c.request->sampler.settled(); };
  const auto there = std::partition(choices.begin(), choices.end(), std::not_fn(late));
  const std::span now(choices.begin(), there);
  if (std::ranges::count_if(
          now, [](const HostChoice& c) { return takes_long(c.request->request); }) > 1) {
    workers_.each(now.size(), [&](size_t i) { sample(now[i]); });
  } else {
    for (const HostChoice& choice : now) sample(choice);
  }
  for (const HostChoice& choice : std::span(there, choices.end())) {
    if (!late(choice)) {  // by now
      sample(choice);
      continue;
    }
    const RequestId id = choice.request->id;
    tokens[choice.token].id = kPendingToken;
    choice.request->logits.assign(choice.logits.begin(), choice.logits.end());
    if (std::exchange(choice.request->fresh_mask, false)) ++late_masks_;
    wait_for_mask(id);
  }
}

// Tokens for the rows that sample, in order.
std::vector<SampledToken> RequestSteps::tokens_of(const StepUnderWay& under_way,
                                                  std::span<const SlotToken> by_slot,
                                                  const ActiveRequests& active,
                                                  const Chosen& chosen) {
  const TensorView logits =
      under_way.for_host && !under_way.row_slots.empty() ? queue_->logits() : TensorView{};
  std::vector<SampledToken> tokens;
  std::vector<HostChoice> choices;
  int64_t next = 0;  // row of the logits
  auto of_slot = by_slot.begin();
  for (const StepRow& row : under_way.step.rows) {
    const auto it = active.find(row.id);
    ActiveRequest* const request = it == active.end() ? nullptr : it->second.get();
    if (request != nullptr && request->request.scores_prompt() &&
        request->facts.times.first_token == 0) {
      score_prompt(*request, row, logits, next, workers_);
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
      choices.push_back({it->second, last, ids, tokens.size()});
      tokens.emplace_back();
      continue;
    }
    tokens.push_back(token_of(*request, ids, *sampled));
    if (!tokens.back().error) chosen(it->second, tokens.back());
  }
  choose(choices, tokens, chosen);
  return tokens;
}

}  // namespace braid
