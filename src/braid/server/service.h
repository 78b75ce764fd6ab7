#pragma once

#include <atomic>

#include "braid/engine/chat_prompt.h"
#include "braid/engine/requests/request_loop.h"
#include "braid/grammar/grammar_store.h"
#include "braid/server/metrics.h"
#include "braid/server/schema/api_error.h"
#include "braid/server/step_lanes.h"
#include "braid/text/answer_parser.h"

namespace braid::server {

// A server's means for answering: a model, its loop of requests, and the operator's choices.
struct Service {
  const LoadedModel& loaded;
  RequestLoop& loop;
  const ChatPrompt* chat = nullptr;     // null without a chat template
  ReasoningMarks marks;                 // marks in the chat template's text
  CallFormat calls = CallFormat::none;  // likewise
  GrammarStore* grammars = nullptr;     // null in a build without grammars
  std::string name;                     // the model's name for clients
  std::string fingerprint;              // equal for equal version, model and plan
  int64_t max_context = 0;              // tokens per sequence
  SamplingParams defaults;              // for fields missing in a request
  Metrics& metrics;
  StepLanes* lanes = nullptr;  // null if steps are not measured
  const SchedulerConfig& limits;
  bool cache_per_key = false;  // as in ServerConfig, as the next field
  double hang_seconds = 30;
  int64_t created = 0;  // seconds of the Unix epoch at the model's loading
  // Set once the engine gives no more ends: exchanges stop waiting for them.
  const std::atomic<bool>& abandoned;

  const Tokenizer& tokenizer() const { return loaded.tokenizer; }
  int64_t vocabulary() const { return loaded.model.config().V; }
  // Fails with 503 once `abandoned` is set.
  void check_engine() const {
    if (abandoned) throw ApiError(503, "the server ends while a step of the engine hangs");
  }
};

}  // namespace braid::server
