#include "braid/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>

#include "braid/base/math.h"
#include "braid/engine/link_topology.h"
#include "braid/engine/requests/kv_room.h"
#include "braid/engine/sampling_defaults.h"
#include "braid/engine/sequence_ranks.h"
#include "braid/engine/step_memory.h"
#include "braid/io/model_lookup.h"

namespace braid {
namespace {

constexpr int64_t kStepTokens = 512;
constexpr double kSlice = 0.05;  // seconds between two questions whether to go on waiting

// Which prompts far keys are left out of; false: of none. With probe and previous a prompt's keys
// depend on its end, and serve no other prompt. Where GPUs have whole prompts, a thinned prompt
// waits for a plan, and steps of many requests do not: unless levels are named, prompts of at most
// `shared` tokens stay exact.
bool set_approximation(const EngineConfig& config, bool divides, int64_t shared,
                       SchedulerConfig& limits) {
  if (!config.thinning) return false;
  const KeyLevels levels =
      levels_of(config.thinning,
                divides ? std::optional(topology_of(config.links, config.tp)) : std::nullopt);
  const bool thins = std::ranges::any_of(levels.keep, [](double share) { return share < 1; });
  if (!thins && !levels.drop_queries) return false;
  const bool planned = config.device.cuda && !divides && config.thinning.groups.empty();
  const int64_t exact = planned ? std::max(limits.own_prompt, shared) : limits.own_prompt;
  limits.approximate_from = std::max<int64_t>(levels.groups.back(), exact + 1);
  limits.approximate_shared = levels.importance == Importance::own;
  return true;
}

}  // namespace

std::unique_ptr<Engine> Engine::open(const EngineOptions& options) {
  const ModelStores stores = model_stores([](const char* name) { return std::getenv(name); });
  const std::string path = find_model(options.model, stores);
  return std::make_unique<Engine>(path, choose_parallel(options.parallel).engine, options.limits);
}

Engine::Engine(const std::string& path, const EngineConfig& config, const RequestLimits& limits)
    : Engine(std::make_unique<LoadedModel>(path), config, limits) {}

Engine::Engine(std::unique_ptr<LoadedModel> loaded, const EngineConfig& config,
               const RequestLimits& limits)
    : loaded_(std::move(loaded)), limits_(limits.scheduler) {
  loaded_->model.stretch(config.max_context);
  const Model& model = loaded_->model;
  if (model.config().dual && config.max_context > model.config().context) {
    fail(ErrorCode::kInvalidArgument, "a context of {} tokens: dual chunk attention goes to {}",
         config.max_context, model.config().context);
  }
  if (chat_template_source(loaded_->text_file())) chat_ = std::make_unique<ChatPrompt>(*loaded_);
  config_ = complete(config, model);
  CacheShape cache = cache_shape(config_, model);
  const int64_t token_bytes = kv_token_bytes();
  StepMemory memory(config_, model);
  int64_t bytes = limits.kv_bytes;
  if (bytes == 0 && config_.device.cuda) {
    bytes = token_bytes * memory.tokens_on_all(limits_.max_running * config_.max_context);
  }
  const KvRoom room = kv_room({.bytes_free = available_memory(),
                               .bytes_wanted = bytes,
                               .token_bytes = token_bytes,
                               .page_size = cache.page_size,
                               .context = config_.max_context,
                               .context_named = config.max_context > 0,
                               .sequences = limits_.max_running});
  cache.pages = room.pages;
  cache.pages_per_sequence = ceil_div(room.context, cache.page_size);
  limits_.pages = room.pages;
  limits_.page_size = cache.page_size;
  limits_.max_context = room.context;
  const bool divides = config_.sp && config_.tp > 1;
  limits_.prompts_alone = divides;
  limits_.groups = config_.dp;
  const int64_t slots = cache.pages * cache.page_size;
  // Prompts are chosen for beside the keys of all sequences, whose pool is what is left of memory.
  if (divides && config_.device.cuda) memory.bound(*config_.sp, slots);
  if (divides && (config_.sp->apart || !config_.device.cuda)) {
    limits_.groups = config_.tp;
    if (limits_.own_prompt == 0) limits_.own_prompt = kOwnPrompt;
  }
  const int64_t least = limits_.max_running + cache.page_size;
  const int64_t usual = std::max(kStepTokens, least);
  const int64_t shared = limits_.max_step_tokens > 0 ? limits_.max_step_tokens : usual;
  const bool approximates =
      set_approximation(config_, divides, std::min(shared, kStepTokens), limits_);
  const bool alone = divides || approximates;
  if (limits_.max_step_tokens == 0) {
    const int64_t prompt = std::min(config_.prefill_chunk, room.context);
    limits_.max_step_tokens = alone ? std::max(prompt, least) : shared;
    if (alone && !divides) limits_.shared_tokens = shared;
  }
  runner_ = std::make_unique<Runner>(model, runner_config(config_, cache));
  loop_ = std::make_unique<RequestLoop>(*runner_, loaded_->tokenizer, model.config().V,
                                        cache.kv_dtype, limits_,
                                        StepQueueOptions{.graph_bytes = limits.graph_bytes,
                                                         .on_host = limits.sample_on_host,
                                                         .say = limits.say,
                                                         .on_step = limits.on_step});
}

Engine::~Engine() = default;

int64_t Engine::kv_token_bytes() const {
  return braid::kv_token_bytes(model_config(), *config_.kv_dtype);
}

SamplingParams Engine::default_sampling(bool chat) const {
  return braid::default_sampling(loaded_->text_file(), chat);
}

RequestId Engine::submit(AnswerRequest request, std::shared_ptr<AnswerSink> sink) {
  return loop_->submit(std::move(request), std::move(sink));
}

void Engine::cancel(RequestId id) {
  loop_->cancel(id);
}

bool Engine::drain(double seconds) {
  return loop_->drain(seconds);
}

RequestStats Engine::stats() const {
  return loop_->stats();
}

Answer Engine::generate(AnswerRequest request, const OnText& on_text) {
  AnswerStream stream(*loop_, std::move(request));
  if (!on_text) return stream.rest();
  Answer answer;
  while (std::optional<AnswerText> piece = stream.next()) {
    answer.text += piece->text;
    std::ranges::move(piece->tokens, std::back_inserter(answer.tokens));
    if (!piece->text.empty() && !on_text(piece->text)) {
      stream.cancel();
      break;
    }
  }
  Answer rest = stream.rest();  // the end of a cancelled answer
  answer.prompt = std::move(rest.prompt);
  answer.end = std::move(rest.end);
  return answer;
}

std::vector<Answer> Engine::generate_all(std::vector<AnswerRequest> requests) {
  const size_t most = std::max<int64_t>(1, limits_.max_waiting / 2);
  std::vector<Answer> answers;
  std::deque<std::unique_ptr<AnswerStream>> open;
  const auto take_oldest = [&] {
    answers.push_back(open.front()->rest());
    open.pop_front();
  };
  for (size_t next = 0; next < requests.size();) {
    if (open.size() >= most) take_oldest();
    try {
      open.push_back(std::make_unique<AnswerStream>(*loop_, requests[next]));
      ++next;
    } catch (const Error& error) {  // others fill the queue
      if (error.code() != ErrorCode::kResource || open.empty()) throw;
      take_oldest();
    }
  }
  while (!open.empty()) take_oldest();
  return answers;
}

// Computes a whole prompt for scores or logits of the prompt's tokens.
Answer Engine::compute(AnswerRequest request, const KeepWaiting& keep_waiting) {
  request.max_tokens = 1;
  AnswerStream stream(*loop_, std::move(request));
  while (!stream.wait_for_end(kSlice)) {
    if (!keep_waiting || keep_waiting()) continue;
    stream.cancel();
    while (!stream.wait_for_end(kSlice)) {  // the running step still writes the request's results
    }
    fail(ErrorCode::kAborted, "the call was cancelled");
  }
  return stream.rest();
}

std::vector<double> Engine::score(std::span<const int32_t> ids, const KeepWaiting& keep_waiting) {
  if (ids.size() < 2) {
    fail(ErrorCode::kInvalidArgument, "a score of {} ids, wanted at least 2", ids.size());
  }
  const Answer answer =
      compute({.prompt = {ids.begin(), ids.end()}, .prompt_logprobs = 0}, keep_waiting);
  std::vector<double> scores;
  for (const SampledToken& token : answer.prompt) {
    if (!std::isfinite(token.logprob)) {
      const int64_t n = std::ssize(scores) + 1;
      throw not_numbers(fmt::format("score of token {}", n + 1), n, *config_.kv_dtype);
    }
    scores.push_back(token.logprob);
  }
  return scores;
}

std::vector<float> Engine::logits(std::span<const int32_t> ids, const KeepWaiting& keep_waiting) {
  const auto V = static_cast<size_t>(model_config().V);
  Scheduler::check_prompt(limits_, std::ssize(ids));
  std::vector<float> rows(ids.size() * V);
  compute({.prompt = {ids.begin(), ids.end()},
           .on_logits =
               [&](int64_t position, std::span<const float> row) {
                 std::ranges::copy(row, rows.begin() + position * std::ssize(row));
               }},
          keep_waiting);
  return rows;
}

DeviceLogits Engine::device_logits(std::span<const int32_t> ids, const KeepWaiting& keep_waiting) {
  const int64_t tokens = std::ssize(ids), V = model_config().V;
  const int64_t row_bytes = V * static_cast<int64_t>(sizeof(float));
  Scheduler::check_prompt(limits_, tokens);
  DeviceLogits made{.memory = runner_->allocate(tokens * row_bytes),
                    .tokens = tokens,
                    .vocabulary = V,
                    .cuda = config_.device.cuda,
                    .gpu = config_.device.cuda ? config_.device.first_gpu() : 0};
  compute({.prompt = {ids.begin(), ids.end()},
           .on_logit_rows =
               [&](int64_t position, const TensorView& rows) {
                 runner_->copy(rows, made.memory->data() + position * row_bytes);
               }},
          keep_waiting);
  return made;
}

}  // namespace braid
