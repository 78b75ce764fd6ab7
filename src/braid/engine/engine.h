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

// Bounds of what an engine takes on at once.
struct RequestLimits {
  SchedulerConfig scheduler;  // its pages, page size and context are worked out by the engine
  int64_t kv_bytes = 0;       // of the KV cache; 0: a quarter of the free memory, on GPUs what fits
  // Of a GPU's memory, for graphs of the steps that requests can need; all are made at the start.
  int64_t graph_bytes = int64_t{1} << 30;
  bool sample_on_host = false;                       // also on GPUs, where it is slower
  std::function<void(const std::string& line)> say;  // what was made; may be empty
};

// All that opens an engine.
struct EngineOptions {
  std::string model;         // a path, or a name as `braid run` takes it (io/model_lookup.h)
  ParallelRequest parallel;  // devices, ranks, strategy
  RequestLimits limits;
};

// Logits of given tokens on the device of rank 0. May outlive the engine.
struct DeviceLogits {
  std::unique_ptr<DeviceMemory> memory;  // f32 [tokens, vocabulary], row-major
  int64_t tokens = 0;
  int64_t vocabulary = 0;
  bool cuda = false;
  int gpu = 0;  // where it is `cuda`
};

// A model on its devices, answering many requests at once. Owns the model's file and weights, the
// ranks, the tokenizer, the KV cache and the threads that step them. All functions may be called
// from any thread. Generator (generate.h) is the road for one request at a time.
class Engine {
 public:
  // Fails with kNotFound where there is no such model, and as choose_parallel and the constructor.
  static std::unique_ptr<Engine> open(const EngineOptions& options);

  // Loads the model at `path` and starts its ranks. Fails as Model and Runner do; with kResource
  // where the KV cache has no room; on GPUs, whose steps are all planned here, where the strategy
  // is refused. With config.sp ranks divide each prompt, which then has steps of its own, answers
  // are made on rank 0, and the host samples. limits.scheduler.max_step_tokens may be 0: 512, with
  // config.sp the whole context.
  Engine(const std::string& path, const EngineConfig& config, const RequestLimits& limits = {});
  // The same for a model that was loaded.
  Engine(std::unique_ptr<LoadedModel> loaded, const EngineConfig& config,
         const RequestLimits& limits = {});
  // Ends all requests with AnswerReason::abort.
  ~Engine();

  const LoadedModel& loaded() const { return *loaded_; }
  const Tokenizer& tokenizer() const { return loaded_->tokenizer; }
  const ModelConfig& model_config() const { return loaded_->model.config(); }
  // What was chosen: threads, the KV cache's dtype.
  const EngineConfig& config() const { return config_; }
  const SchedulerConfig& limits() const { return limits_; }
  int64_t max_context() const { return limits_.max_context; }  // tokens of one sequence
  int64_t kv_token_bytes() const;                              // keys and values of one token
  // Turns messages into a prompt; null where the model brings no chat template.
  const ChatPrompt* chat() const { return chat_.get(); }
  // How tokens are chosen where nobody says: as the model's file recommends, else greedily, in a
  // chat at temperature 0.7.
  SamplingParams default_sampling(bool chat) const;

  // As of RequestLoop.
  RequestId submit(AnswerRequest request, std::shared_ptr<AnswerSink> sink);
  void cancel(RequestId id);
  bool drain(double seconds);
  RequestStats stats() const;
  RequestLoop& requests() { return *loop_; }

  // The text of an answer piece by piece, in the caller's thread. False ends the answer.
  using OnText = std::function<bool(std::string_view text)>;
  // Answers and waits. Fails as submit() does, or with the answer's error.
  Answer generate(AnswerRequest request, const OnText& on_text = {});
  // Answers to all, in their order. At most half of the engine's queue is taken at a time; the
  // first error cancels the rest.
  std::vector<Answer> generate_all(std::vector<AnswerRequest> requests);
  // Asked about every 0.05 s while a call waits; false cancels the call, which fails with kAborted.
  using KeepWaiting = std::function<bool()>;
  // Log-probability of each of ids[1..] given the ids before it: f64 [ids - 1]; at least two ids.
  // Fails with kMalformed where logits are not numbers.
  std::vector<double> score(std::span<const int32_t> ids, const KeepWaiting& keep_waiting = {});
  // The logits after each id: f32 [ids, V], row-major.
  std::vector<float> logits(std::span<const int32_t> ids, const KeepWaiting& keep_waiting = {});
  // The same, left where the model is. Fails with kResource where the device has no room for them.
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
