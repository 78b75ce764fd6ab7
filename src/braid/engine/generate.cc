#include "braid/engine/generate.h"

#include <algorithm>
#include <chrono>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/base/math.h"
#include "braid/engine/kv_dtype.h"
#include "braid/engine/sequence_ranks.h"
#include "braid/engine/step_memory.h"
#include "braid/engine/stop_text.h"

namespace braid {
namespace {

constexpr int64_t kScoreChunk = 64;  // rows of logits at a time: [64, V] f32 stays small
// Of a step whose keys are thinned, where shorter steps would leave out other keys.
constexpr int64_t kScoreBytes = int64_t{1} << 30;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

EngineConfig complete(EngineConfig config, const Model& model) {
  if (config.tp < 1) {
    fail(ErrorCode::kInvalidArgument, "{} parallelism over {} ranks, wanted at least 1",
         config.sp ? "sequence" : "tensor", config.tp);
  }
  if (config.threads == 0) config.threads = std::max(1, cpu::usable_cores() / config.tp);
  if (config.threads < 1 || config.threads * config.tp > cpu::ThreadPool::kMaxThreads) {
    fail(ErrorCode::kInvalidArgument, "{} threads on each of {} ranks, allowed are 1 to {} in all",
         config.threads, config.tp, cpu::ThreadPool::kMaxThreads);
  }
  config.kv_dtype = choose_kv_dtype(config.kv_dtype, model.default_kv_dtype(), config.device.cuda,
                                    (config.sp && config.tp > 1) || config.thinning);
  const int64_t wanted = config.max_context > 0 ? config.max_context : model.config().context;
  const bool steps = (config.sp || config.thinning) && config.prefill_chunk == 0;
  StepMemory memory(config, model);
  if (steps) config.prefill_chunk = memory.step_of_prompt(wanted);
  if (config.max_context == 0) {
    config.max_context = config.device.cuda ? memory.tokens_on_all(wanted) : wanted;
    if (steps) config.prefill_chunk = std::min(config.prefill_chunk, config.max_context);
  }
  if (config.sp && config.tp > 1 && config.device.cuda) {
    const CacheShape cache = cache_shape(config, model);
    memory.bound(*config.sp, cache.pages * cache.page_size);
  }
  if (config.prefill_chunk == 0) config.prefill_chunk = config.device.cuda ? 8192 : 512;
  return config;
}

CacheShape cache_shape(const EngineConfig& config, const Model& /*model*/) {
  const int64_t pages = ceil_div(config.max_context, kPageSize);
  CacheShape cache = {.pages = config.sequences * pages,
                      .page_size = kPageSize,
                      .pages_per_sequence = pages,
                      .kv_dtype = *config.kv_dtype};
  if (config.device.cuda) cache.activations = DType::bf16;
  return cache;
}

RunnerConfig runner_config(const EngineConfig& config, const CacheShape& cache) {
  return {.device = config.device,
          .tp = config.tp,
          .ep = config.ep,
          .dp = config.dp,
          .expert_memory = config.expert_memory,
          .threads = config.threads,
          .sp = config.sp,
          .thinning = config.thinning,
          .cache = cache,
          .schedule = config.schedule,
          .strategy = config.strategy,
          .links = config.links,
          .profile = config.profile,
          .on_step = config.on_step,
          .communication = config.communication,
          .job = config.job,
          .decode = config.decode,
          .count_experts = config.count_experts};
}

std::string_view to_string(FinishReason reason) {
  return reason == FinishReason::stop ? "stop" : "length";
}

namespace {

// Why a prompt does not fit: the model's positions, or for ranks that divide a prompt the room that
// its keys need, and the room there.
std::string limit_of(const EngineConfig& config, const Model& model, int64_t tokens) {
  const ModelConfig& c = model.config();
  if (tokens >= c.context) return fmt::format("; the model has {} positions", c.context);
  if (!config.sp || config.tp == 1) return "";
  const int64_t token = c.layers * bytes_of(*config.kv_dtype, c.cached_numbers());
  CacheShape cache = cache_shape(config, model);
  if (config.sp->apart || !config.device.cuda) {
    cache = rank_cache(cache, config.tp);
  }
  const auto mb = [&](int64_t n) { return 1e-6 * static_cast<double>(n * token); };
  return fmt::format("; its keys want {:.1f} MB, and each of {} ranks has room for {:.1f} MB",
                     mb(tokens), config.tp, mb(cache.pages * cache.page_size));
}

}  // namespace

Generator::Generator(const Model& model, const Tokenizer* tokenizer, const EngineConfig& config)
    : model_(model),
      tokenizer_(tokenizer),
      config_(complete(config, model)),
      pages_(config_.sequences * ceil_div(config_.max_context, kPageSize), kPageSize) {
  runner_ = std::make_unique<Runner>(model, runner_config(config_, cache_shape(config_, model)));
}

void Generator::check_prompt(const Request& request) const {
  const auto n = static_cast<int64_t>(request.prompt.size());
  if (n == 0) fail(ErrorCode::kInvalidArgument, "the prompt is empty: it has no tokens");
  if (n >= config_.max_context) {
    fail(ErrorCode::kInvalidArgument,
         "the prompt has {} tokens, the context holds {}: at most {} fit with room for an answer{}",
         n, config_.max_context, config_.max_context - 1, limit_of(config_, model_, n));
  }
  for (int32_t id : request.prompt) {
    if (id < 0 || id >= model_.config().V) {
      fail(ErrorCode::kInvalidArgument, "token id {} in the prompt, the vocabulary has 0 to {}", id,
           model_.config().V - 1);
    }
  }
}

LoopStats Generator::finish(const TokenLoop& loop) const {
  LoopStats stats = loop.stats();
  if (config_.on_loop && !stats.trace.empty()) config_.on_loop(stats);
  return stats;
}

Generation Generator::generate(const Request& request, const OnText& on_text) {
  BRAID_CHECK(tokenizer_ != nullptr, "an engine without a tokenizer makes no text");
  check_prompt(request);
  const auto start = Clock::now();
  const auto prompt_size = static_cast<int64_t>(request.prompt.size());
  const int64_t room = config_.max_context - prompt_size;
  const int64_t limit = request.max_tokens > 0 ? std::min(request.max_tokens, room) : room;

  StreamDecoder decoder(*tokenizer_, {.skip_special = true, .continuation = request.continuation});
  StopText text(request.stop);
  std::optional<Conversation> own;
  Conversation& kept = request.conversation ? *request.conversation : own.emplace(pages_);
  KvLease& lease = kept.lease_;
  Batch batch(kPageSize);
  Generation result;

  // The last token is computed in any case: its logits are wanted.
  const auto shared =
      std::ranges::mismatch(kept.ids_, std::span(request.prompt).first(request.prompt.size() - 1));
  kept.ids_.erase(shared.in1, kept.ids_.end());
  result.reused = std::ssize(kept.ids_);
  for (int64_t done = result.reused; done < prompt_size;) {
    const int64_t n = std::min(config_.prefill_chunk, prompt_size - done);
    batch.clear();
    batch.add(std::span(request.prompt).subspan(done, n), done, lease.hold(done + n),
              done + n == prompt_size ? 1 : 0);
    runner_->step(batch);
    kept.ids_.insert(kept.ids_.end(), request.prompt.begin() + done,
                     request.prompt.begin() + done + n);
    done += n;
    if (done < prompt_size && request.on_prompt && !request.on_prompt(done)) {
      result.reason = FinishReason::stop;
      result.timings.prompt_seconds = seconds_since(start);
      return result;
    }
  }
  result.timings.prompt_seconds = seconds_since(start);

  const auto loop =
      runner_->loop({.sequences = {{.prompt = request.prompt,
                                    .sampling = request.sampling,
                                    .hold = [&lease](int64_t tokens) -> std::span<const int32_t> {
                                      return lease.hold(tokens);
                                    },
                                    .mask = request.mask}},
                     .limit = limit,
                     .trace = static_cast<bool>(config_.on_loop)});
  // False once the listener has had enough.
  const auto give = [&](const std::string& piece) {
    result.text += piece;
    return piece.empty() || !on_text || on_text(piece);
  };
  bool going = true;
  while (going && std::ssize(result.ids) < limit) {
    const SampledToken& token = loop->next()[0];
    if (token.error) throw Error(*token.error);
    if (result.ids.empty()) result.timings.ttft_ms = 1e3 * seconds_since(start);
    // A head may be padded with rows that no token has: such an id has no text.
    const bool known = token.id < tokenizer_->vocab_size();
    if (!request.ignore_eos && known && tokenizer_->is_end_of_generation(token.id)) {
      result.reason = FinishReason::stop;
      break;
    }
    // A token's keys are present once the next token exists.
    if (!result.ids.empty()) kept.ids_.push_back(result.ids.back());
    result.ids.push_back(token.id);
    if (!give(text.push(known ? decoder.push(token.id) : "")) || text.found()) {
      result.reason = FinishReason::stop;
      going = false;
    }
    if (request.sampling.logprobs >= 0) result.sampled.push_back(token);
  }
  if (going) {
    give(text.push(decoder.finish()));
    give(text.finish());
  }
  result.timings.decode_seconds = seconds_since(start) - result.timings.ttft_ms / 1e3;
  finish(*loop);
  return result;
}

std::vector<double> Generator::score(std::span<const int32_t> ids, int64_t first) {
  const auto n = static_cast<int64_t>(ids.size());
  BRAID_CHECK(1 <= first && first <= n && n <= config_.max_context);
  KvLease lease(pages_);
  Batch batch(kPageSize);
  std::vector<double> scores;
  const bool thins = bool{config_.thinning};
  const int64_t most =
      thins ? std::max(kScoreChunk, kScoreBytes / (4 * model_.config().V)) : kScoreChunk;
  // Token i is scored by the logits of token i - 1; the last token is not computed.
  for (int64_t done = 0; done < n - 1;) {
    int64_t end = n - 1;
    if (!thins && done < first - 1) end = first - 1;
    end = std::min({end, done + config_.prefill_chunk, std::max(done, first - 1) + most});
    const int64_t rows = std::min(end - done, std::max<int64_t>(0, end - (first - 1)));
    const auto chunk = ids.subspan(done, end - done);
    batch.clear();
    batch.add(chunk, done, lease.hold(end), rows);
    const TensorView logits = runner_->run(batch);
    for (int64_t r = 0; r < logits.shape[0]; ++r) {
      const std::span row(logits.row_as<float>(r), logits.cols());
      const int64_t at = end - rows + r;
      if (!usable(row)) {
        throw not_numbers(fmt::format("score of token {}", at + 2), at + 1, kv_dtype());
      }
      const int32_t next = ids[at + 1];
      scores.push_back(row[next] - log_sum_exp(row));
    }
    done = end;
  }
  return scores;
}

LoopStats Generator::advance(int64_t cached, int64_t tokens, int64_t chunk, int64_t sequences,
                             int64_t own) {
  BRAID_CHECK(cached + tokens <= config_.max_context && sequences <= config_.sequences);
  struct Advanced {
    std::vector<int32_t> ids;
    std::unique_ptr<KvLease> lease;
    int64_t cached = 0;
    int group = -1;
  };
  std::vector<Advanced> all;
  const bool decodes = chunk == 1 && tokens > 0;
  const auto add_sequence = [&](int64_t before, int group) {
    Advanced& a = all.emplace_back(Advanced{{}, std::make_unique<KvLease>(pages_), before, group});
    // Each sequence gets other tokens: equal tokens would choose the same experts.
    const auto s = std::ssize(all) - 1;
    for (int64_t i = 0; i < before + tokens; ++i) {
      a.ids.push_back(static_cast<int32_t>((i * 7919 + s * 104729) % model_.config().V));
    }
    // A sequence has the same pages in each call, so a call finds keys of the call before.
    if (own > 0) {
      a.lease->hold(before + tokens);
    } else if (sequences > 1) {
      a.lease->hold(config_.max_context);
    }
  };
  for (int64_t s = 0; s < sequences; ++s) add_sequence(cached, -1);
  for (int64_t s = 0; decodes && s < own * config_.tp; ++s) {
    add_sequence(kOwnCached, static_cast<int>(s % config_.tp));
  }
  Batch batch(kPageSize);
  const auto add = [&](const Advanced& a, int64_t begin, int64_t end) {
    batch.add(std::span(a.ids).subspan(begin, end - begin), begin, a.lease->hold(end), 1, a.group);
  };
  if (decodes) {
    // The first pass, then one for each token but the last.
    LoopRequest request{.limit = tokens, .trace = static_cast<bool>(config_.on_loop)};
    for (const Advanced& a : all) {
      add(a, a.cached, a.cached + 1);
      request.sequences.push_back({.prompt = std::span(a.ids).first(a.cached + 1),
                                   .hold = [held = a.lease.get(), most = a.cached + tokens](
                                               int64_t n) -> std::span<const int32_t> {
                                     return held->hold(std::min(n, most));
                                   },
                                   .group = a.group});
    }
    runner_->step(batch);
    const auto loop = runner_->loop(std::move(request));
    for (int64_t i = 0; i < tokens; ++i) {
      for (const SampledToken& token : loop->next()) {
        if (token.error) throw Error(*token.error);
      }
    }
    return finish(*loop);
  }
  for (const Advanced& a : all) {
    for (int64_t done = cached; done < cached + tokens;) {
      const int64_t end = std::min(done + chunk, cached + tokens);
      batch.clear();
      add(a, done, end);
      runner_->step(batch);
      done = end;
    }
  }
  return {};
}

}  // namespace braid
