#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "braid/engine/kv/kv_pages.h"
#include "braid/engine/runner.h"
#include "braid/engine/sampling.h"
#include "braid/engine/token_loop.h"
#include "braid/io/tokenizer.h"

namespace braid {

struct EngineConfig {
  DeviceSpec device;
  int tp = 1;                             // all ranks, as in RunnerConfig
  int ep = 1;                             // as in RunnerConfig
  int dp = 1;                             // as in RunnerConfig
  int64_t expert_memory = kExpertMemory;  // as in RunnerConfig
  std::optional<SequenceParallel> sp;     // as in RunnerConfig
  Thinning thinning;                      // as in RunnerConfig
  int threads = 0;                        // per rank; 0: this process' cores divided by tp
  // Tokens per sequence; 0: the model's context, on GPUs as far as memory allows.
  int64_t max_context = 0;
  int64_t sequences = 1;  // full sequences that the KV cache holds
  // For the KV cache; empty: the default of the model and the device (kv_dtype.h).
  std::optional<DType> kv_dtype;
  // Tokens of a prompt in a step; 0: 512, on a GPU 8192, with `sp` or thinned keys what fits.
  int64_t prefill_chunk = 0;
  std::string schedule = "sequential";          // as in RunnerConfig
  std::shared_ptr<const OpScheduler> strategy;  // in place of `schedule`; may be null
  fabric::LinkModel links;                      // emulated links between ranks
  std::optional<Profile> profile;               // this machine's: prices for `auto`
  std::function<void(const Runner&)> on_step;   // after each step, with its times; may be empty
  // Called with the steps of each answer from a device loop; may be empty.
  std::function<void(const LoopStats&)> on_loop;
  bool communication = true;    // false: wrong results (WorldConfig)
  job::Job* job = nullptr;      // as of RunnerConfig
  std::string decode = "auto";  // as of RunnerConfig
  bool count_experts = false;   // as of RunnerConfig
};

// A sequence's keys that stay in the KV cache between requests. A request with a conversation
// computes only tokens behind the common beginning of prompt and cache. A conversation holds its
// pages for life; its generator outlives it.
class Conversation {
 public:
  explicit Conversation(KvPages& pages) : lease_(pages) {}
  // Ids with present keys.
  const std::vector<int32_t>& ids() const { return ids_; }

 private:
  friend class Generator;
  KvLease lease_;
  std::vector<int32_t> ids_;
};

// A configuration with nothing left to choose. Fails with kInvalidArgument on ranks or threads that
// cannot be.
EngineConfig complete(EngineConfig config, const Model& model);
// The cache of a sequence at full context, `sequences` times.
CacheShape cache_shape(const EngineConfig& complete, const Model& model);
RunnerConfig runner_config(const EngineConfig& complete, const CacheShape& cache);

struct Request {
  std::vector<int32_t> prompt;  // at least one id
  int64_t max_tokens = 0;       // 0: until the context is full
  SamplingParams sampling;
  std::vector<std::string> stop;  // texts that end the answer; the answer has no such text
  bool continuation = false;      // the answer goes on from the prompt's text: keep its first space
  bool ignore_eos = false;
  TokenMask mask;  // which tokens may come next; empty: all. Not asked for in advance.
  Conversation* conversation = nullptr;  // whose keys are used and added to; null: none stay
  // Called after each step of the prompt but the last, with the number of finished tokens; false
  // ends the generation, which then has no ids. May be empty.
  std::function<bool(int64_t done)> on_prompt;
};

enum class FinishReason { stop, length };
std::string_view to_string(FinishReason reason);

struct Timings {
  double ttft_ms = 0;  // from the start of generate() to the first token
  double prompt_seconds = 0;
  double decode_seconds = 0;  // of all tokens after the first
};

struct Generation {
  std::vector<int32_t> ids;  // without the end-of-generation token
  std::string text;
  FinishReason reason = FinishReason::length;
  int64_t reused = 0;                 // prompt tokens with keys from the conversation
  std::vector<SampledToken> sampled;  // [ids], where log-probabilities were asked for
  Timings timings;
};

// Answers a single request at a time; for a single thread. Engine (engine.h) answers many;
// Generator is the road of --sp, of conversations with token-by-token keys, and of sampling on
// GPUs.
class Generator {
 public:
  // `model` and `tokenizer` outlive the generator. A null tokenizer is enough for score and
  // advance.
  Generator(const Model& model, const Tokenizer* tokenizer, const EngineConfig& config);
  Generator(const Model& model, const Tokenizer& tokenizer, const EngineConfig& config)
      : Generator(model, &tokenizer, config) {}

  int threads() const { return config_.threads; }
  int64_t max_context() const { return config_.max_context; }
  int64_t prefill_chunk() const { return config_.prefill_chunk; }
  DType kv_dtype() const { return *config_.kv_dtype; }
  Runner& runner() { return *runner_; }
  const Runner& runner() const { return *runner_; }

  // For this generator's requests, one at a time. Other requests lack the taken pages.
  Conversation conversation() { return Conversation(pages_); }

  // Fails as generate() would on a prompt, before anything is computed.
  void check_prompt(const Request& request) const;

  // Called with each new piece of text, never half a character. False ends the
  // generation.
  using OnText = std::function<bool(std::string_view text)>;

  // Continues the prompt. Fails with kInvalidArgument on an empty prompt, ids outside the
  // vocabulary, or a prompt that leaves no room in the context; with a token's error
  // (token_loop.h).
  Generation generate(const Request& request, const OnText& on_text = {});

  // Log-probability of each of ids[first..] given the ids before: f64 [ids - first], 1 <= first.
  // Fails with kMalformed if logits are not numbers.
  std::vector<double> score(std::span<const int32_t> ids, int64_t first);

  // Forward passes alone, for benchmarks, with arbitrary tokens: `tokens` more for each of
  // `sequences` sequences with `cached` tokens, one sequence after the other in steps of at most
  // `chunk` tokens; with `chunk` 1 all sequences together, token by token like answers. Then each
  // rank that divides prompts has `own` sequences of its own besides, with kOwnCached tokens
  // before.
  LoopStats advance(int64_t cached, int64_t tokens, int64_t chunk, int64_t sequences = 1,
                    int64_t own = 0);
  static constexpr int64_t kOwnCached = 1024;

 private:
  LoopStats finish(const TokenLoop& loop) const;

  const Model& model_;
  const Tokenizer* tokenizer_;
  EngineConfig config_;
  std::unique_ptr<Runner> runner_;
  KvPages pages_;
};

}  // namespace braid
