#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/engine/chat_prompt.h"
#include "braid/engine/loaded_model.h"
#include "braid/engine/parallel_choice.h"
#include "braid/engine/requests/answer_stream.h"
#include "braid/engine/requests/scheduler.h"

namespace braid {

// Limits on memory and on the requests of an engine.
struct RequestLimits {
  SchedulerConfig scheduler;  // the engine computes pages, page size and context
  // Size of the KV cache; 0: a quarter of the free memory on a CPU, all remaining memory on GPUs.
  int64_t kv_bytes = 0;
  // GPU memory for the graphs of all steps, made at the start.
  int64_t graph_bytes = int64_t{1} << 30;
  bool sample_on_host = false;                       // slower on GPUs
  std::function<void(const std::string& line)> say;  // progress lines; may be empty
  // As in StepQueueOptions.
  std::function<void(const Step& step, double seconds)> on_step;
};

// Arguments of Engine::open.
struct EngineOptions {
  std::string model;         // a path, or a name as `braid run` takes it (io/model_lookup.h)
  ParallelRequest parallel;  // devices, ranks, strategy
  RequestLimits limits;
};

// Logits for given tokens in rank 0's device memory. May outlive the engine.
struct DeviceLogits {
  std::unique_ptr<DeviceMemory> memory;  // f32 [tokens, vocabulary], row-major
  int64_t tokens = 0;
  int64_t vocabulary = 0;
  bool cuda = false;
  int gpu = 0;  // valid if `cuda`
};

// A model on its devices, answering many requests at once. Owns the model's file and weights, the
// ranks, the tokenizer, the KV cache and the engine's threads. All functions are thread-safe.
// Generator (generate.h) serves a single request at a time.
class Engine {
 public:
  // Fails with kNotFound if options.model names no model, and as choose_parallel and the
  // constructor fail.
  static std::unique_ptr<Engine> open(const EngineOptions& options);

  // Loads the model at `path` and starts the ranks. Fails as Model and Runner fail; with kResource
  // if the KV cache has no room; on GPUs, where all steps are planned here, if the strategy is
  // refused. With config.sp ranks divide each long prompt in a step without other requests; where
  // ranks keep keys of their own (keys_apart), short prompts go to one rank each and share steps.
  // With config.thinning prompts of as many tokens as the levels' ranks, or longer than own_prompt,
  // are approximate, each in steps of its own; scored prompts and exact requests are not. Where
  // GPUs have whole prompts and no levels are named, only prompts of more than 512 tokens are, or
  // of more than max_step_tokens if that is less. limits.scheduler.max_step_tokens 0 means 512;
  // with config.sp or config.thinning a prompt alone has as many as complete() gives a Generator.
  Engine(const std::string& path, const EngineConfig& config, const RequestLimits& limits = {});
  // The same for a loaded model.
  Engine(std::unique_ptr<LoadedModel> loaded, const EngineConfig& config,
         const RequestLimits& limits = {});
  // Ends all requests with AnswerReason::abort.
  ~Engine();

  const LoadedModel& loaded() const { return *loaded_; }
  const Tokenizer& tokenizer() const { return loaded_->tokenizer; }
  const ModelConfig& model_config() const { return loaded_->model.config(); }
  // The configuration with all choices made: threads, the KV cache's dtype.
  const EngineConfig& config() const { return config_; }
  const SchedulerConfig& limits() const { return limits_; }
  int64_t max_context() const { return limits_.max_context; }  // tokens per sequence
  int64_t kv_token_bytes() const;                              // keys and values per token
  // Turns messages into a prompt; null if the model has no chat template.
  const ChatPrompt* chat() const { return chat_.get(); }
  // Default sampling: the recommendation of the model's file; else greedy, and temperature 0.7 in
  // a chat.
  SamplingParams default_sampling(bool chat) const;

  // The functions of RequestLoop.
  RequestId submit(AnswerRequest request, std::shared_ptr<AnswerSink> sink);
  void cancel(RequestId id);
  bool drain(double seconds);
  RequestStats stats() const;
  RequestLoop& requests() { return *loop_; }

  // Receives the text of an answer piece by piece, in the caller's thread. False ends the answer.
  using OnText = std::function<bool(std::string_view text)>;
  // Answers and waits. Fails as submit() fails, or with the answer's error.
  Answer generate(AnswerRequest request, const OnText& on_text = {});
  // Answers to all requests, in order. Takes at most half of the engine's queue at a time; the
  // first error cancels the remaining requests.
  std::vector<Answer> generate_all(std::vector<AnswerRequest> requests);
  // Called about every 0.05 s while a call waits; false cancels the call, which fails with
  // kAborted.
  using KeepWaiting = std::function<bool()>;
  // Log-probability of each of ids[1..] given the preceding ids: f64 [ids - 1]; at least two ids.
  // Fails with kMalformed if logits are not finite.
  std::vector<double> score(std::span<const int32_t> ids, const KeepWaiting& keep_waiting = {});
  // The logits after each id: f32 [ids, V], row-major.
  std::vector<float> logits(std::span<const int32_t> ids, const KeepWaiting& keep_waiting = {});
  // The same logits, kept on the model's device. Fails with kResource if the device has no room.
  DeviceLogits device_logits(std::span<const int32_t> ids, const KeepWaiting& keep_waiting = {});

 private:
  Answer compute(AnswerRequest request, const KeepWaiting& keep_waiting);

  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<const ChatPrompt> chat_;
  EngineConfig config_;
  SchedulerConfig limits_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<RequestLoop> loop_;
};

}  // namespace braid
