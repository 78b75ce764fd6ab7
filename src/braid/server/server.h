#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "braid/engine/requests/scheduler.h"
#include "braid/grammar/grammar_store.h"
#include "braid/server/http/http_server.h"
#include "braid/server/routes/router.h"

namespace braid::server {

// Of ServerConfig::hang_seconds: a step that long never ends.
inline constexpr int kHangsUntilEnd = 4;

enum class LogFormat { text, json, none };

// How the answers of an ending server ended.
enum class Drained {
  whole,
  cut,   // some with an error, since they took longer than `drain_seconds`
  hung,  // some with an error, since a step does not end: the server must not be destroyed
};

struct ServerConfig {
  std::string model;  // a file or folder
  std::string name;   // as clients see it; empty: the file's own name
  std::string version;
  HttpConfig http;
  std::vector<ApiKey> keys;  // none: no key is asked for
  LogFormat log = LogFormat::text;
  std::string metrics_prefix = "braid";
  EngineConfig engine;        // device, ranks, threads, strategy; max_context 0: as memory allows
  SchedulerConfig scheduler;  // limits; pages and context are worked out here
  int64_t kv_bytes = 0;       // as in RequestLimits, like the next two
  int64_t graph_bytes = int64_t{1} << 30;
  bool sample_on_host = false;
  // Loads the model; empty: from the file or folder.
  std::function<std::unique_ptr<LoadedModel>()> open;
  GrammarConfig grammars;                  // for structured output
  double drain_seconds = 30;               // for running answers, once the server is to end
  bool cache_per_key = false;              // keys share no cached prompts
  double hang_seconds = 30;                // without an ended step or idle turn: not healthy
  std::optional<SamplingParams> defaults;  // for requests; none: the model's, else OpenAI's
};

// A server from its first line to its last. Listens at once and answers 503 until the model is
// loaded.
class Server {
 public:
  // Tells people how far it is, a line each.
  using Say = std::function<void(const std::string& line)>;

  // Listens. Fails with kResource where the address cannot be had.
  Server(ServerConfig config, Say say);
  ~Server();

  int port() const;
  // Loads the model and answers from then on. Fails as Model and Runner do.
  void load();
  // Takes no new requests, and waits until present requests have ended. Requests that run longer
  // than `drain_seconds` end with an error.
  Drained drain();
  // The error that ended the engine, or a step that hangs for kHangsUntilEnd times `hang_seconds`;
  // empty: neither.
  std::string error() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::server
