#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>

#include "braid/commands.h"
#include "braid/engine/requests/kv_room.h"
#include "braid/model_option.h"
#include "braid/options.h"
#include "braid/server/server.h"
#include "braid/settings.h"
#include "braid/shape_option.h"
#include "braid/version.h"

namespace braid::app {
namespace {

struct ServeOptions {
  server::ServerConfig server;
  ModelOption model;
  ShapeOption shape;
  std::string tokenizer;  // of a shape: a model's
  ParallelOptions parallel;
  std::string kv_memory = "auto", graph_memory = "auto", grammar_memory = "512M", sampling = "auto",
              log = "text", key_file, settings;
  bool no_prefix_cache = false;
};

void say(const std::string& line) {
  std::fprintf(stderr, "braid: %s\n", line.c_str());
}

// Signals that end the server arrive here, whichever thread is running.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  // The signal that came within `ms`; 0: none.
  int wait(int ms) {
    const timespec time{ms / 1000, ms % 1000 * 1000000L};
    const int signal = sigtimedwait(&set_, nullptr, &time);
    return signal > 0 ? signal : 0;
  }

 private:
  sigset_t set_;
};

// A size of memory in bytes; 0: auto.
int64_t size_of(const char* option, const std::string& text) {
  const auto bytes = parse_size(text);
  if (bytes) return *bytes;
  fail(ErrorCode::kInvalidArgument, "{} is '{}', wanted auto or a size such as 512M or 8G", option,
       text);
}

// What is served: a model's file, or a shape with another model's tokenizer.
void choose_model(ServeOptions& o) {
  server::ServerConfig& config = o.server;
  if (!o.shape.named()) {
    o.shape.require_none();
    if (!o.tokenizer.empty()) {
      fail(ErrorCode::kInvalidArgument, "--tokenizer goes with --config, not with a model");
    }
    config.model = o.model.path();
    return;
  }
  if (o.model.named()) fail(ErrorCode::kInvalidArgument, "one of --model and --config");
  config.open = o.shape.opener(o.tokenizer);
  config.model = o.shape.path();
  if (config.name.empty()) config.name = "random";
}

// `settings`: the values in effect.
void serve(ServeOptions& options, const std::string& settings) {
  options.model.rest(0);
  choose_model(options);
  raise_file_limit();
  EndSignals signals;  // before any thread: all threads leave these signals alone
  server::ServerConfig& config = options.server;
  config.kv_bytes = size_of("--kv-memory", options.kv_memory);
  if (const int64_t bytes = size_of("--graph-memory", options.graph_memory); bytes > 0) {
    config.graph_bytes = bytes;
  }
  config.sample_on_host = options.sampling == "host";
  config.grammars.limits.memory = size_of("--grammar-memory", options.grammar_memory);
  if (config.grammars.limits.memory == 0) {
    fail(ErrorCode::kInvalidArgument, "--grammar-memory is '{}', wanted a size such as 512M",
         options.grammar_memory);
  }
  if (options.log == "json") config.log = server::LogFormat::json;
  if (options.log == "none") config.log = server::LogFormat::none;
  if (!options.key_file.empty()) config.keys = server::read_api_keys(options.key_file);
  config.scheduler.prefix_cache = !options.no_prefix_cache;
  config.version = version_line();
  ParallelRun parallel(options.parallel, {config.model});
  const int64_t context = config.engine.max_context;
  config.engine = parallel.engine_config();
  config.engine.max_context = context;
  server::Server server(config, say);
  parallel.announce();
  say("settings: " + settings);
  say(fmt::format("listening at http://{}:{}, loading {}", config.http.host, server.port(),
                  config.model));
  server.load();
  say("ready");
  std::string error;
  while (error.empty() && signals.wait(100) == 0) error = server.error();
  if (error.empty()) {
    say(fmt::format("ending: running answers have {} s, a second signal ends them",
                    config.drain_seconds));
  }
  std::thread second([&] {
    while (signals.wait(1000) == 0) {
    }
    std::_Exit(1);
  });
  second.detach();
  const server::Drained drained = server.drain();  // clients get their answers or errors
  if (drained == server::Drained::cut) say("some answers were cut off");
  if (drained == server::Drained::hung) say("a step does not end, its answers were cut off");
  if (!error.empty()) say("the engine has ended: " + error);
  std::fflush(nullptr);
  std::_Exit(error.empty() && drained != server::Drained::hung ? 0 : 1);
}

}  // namespace

void add_serve(CLI::App& app) {
  auto* command = app.add_subcommand("serve", "Serves a model over HTTP, as OpenAI's API");
  const auto o = std::make_shared<ServeOptions>();
  server::ServerConfig& c = o->server;
  c.http.port = 8000;
  o->model.add_with_argument(*command);
  o->shape.add_to(*command);
  command->add_option("--tokenizer", o->tokenizer,
                      "with --config: a model, whose tokenizer and chat template are taken");
  command->add_option("--host", c.http.host, "address to listen at; 0.0.0.0: all")
      ->capture_default_str();
  command->add_option("--port", c.http.port, "0: any free one")->capture_default_str();
  command->add_option("--served-model-name", c.name, "the model's name for clients");
  command->add_option("--api-key-file", o->key_file,
                      "keys, one a line: \"name: key\" or a key alone");
  command
      ->add_option("--max-running,--max-num-seqs", c.scheduler.max_running,
                   "sequences computed at once")
      ->capture_default_str();
  command
      ->add_option(
          "--max-step-tokens,--max-num-batched-tokens", c.scheduler.max_step_tokens,
          "tokens of one step at most (with --sp or --keep: of a prompt alone as many as fit; GPUs "
          "with whole prompts leave far keys out of those of more than 512 tokens)")
      ->capture_default_str();
  command
      ->add_option("--max-step-ms", c.scheduler.max_step_ms,
                   "time of one step at most, as far as prompts can be cut; 0: no limit")
      ->capture_default_str();
  command
      ->add_option("--max-model-len", c.engine.max_context,
                   "tokens of one sequence; auto or 0: what the model and the memory allow")
      ->transform([](const std::string& text) { return text == "auto" ? "0" : text; })
      ->capture_default_str();
  command
      ->add_option("--kv-memory", o->kv_memory,
                   "of the KV cache: auto (a quarter of what is free) or a size, 8G")
      ->capture_default_str();
  command
      ->add_option("--graph-memory", o->graph_memory,
                   "of a GPU, for graphs of steps, which are made before the server is ready: auto "
                   "(1G) or a size")
      ->capture_default_str();
  command
      ->add_option("--sampling", o->sampling,
                   "where tokens are chosen: auto (on GPUs where these compute) or host, which "
                   "waits for each step")
      ->capture_default_str();
  command
      ->add_option("--max-waiting,--max-num-queued-reqs", c.scheduler.max_waiting,
                   "requests that wait at most; more get 429")
      ->capture_default_str();
  command
      ->add_option("--queue-timeout", c.scheduler.queue_timeout_s,
                   "seconds that a request may wait to begin, then 503; 0: no limit")
      ->capture_default_str();
  command
      ->add_option("--drain-timeout", c.drain_seconds, "seconds for running answers after SIGTERM")
      ->capture_default_str();
  command
      ->add_option("--grammar-timeout", c.grammars.limits.seconds,
                   "seconds that a schema or grammar may take to compile")
      ->capture_default_str();
  command
      ->add_option("--grammar-memory", o->grammar_memory,
                   "that a schema or grammar may take to compile")
      ->capture_default_str();
  command->add_flag("--no-prefix-cache", o->no_prefix_cache, "compute every prompt whole");
  command->add_flag("--cache-per-key", c.cache_per_key,
                    "requests of different API keys share no cached prompt");
  command
      ->add_option("--hang-timeout", c.hang_seconds,
                   "seconds without the end of a step until /health answers 503")
      ->capture_default_str();
  command->add_option("--log", o->log, "text, json or none")->capture_default_str();
  command
      ->add_option("--metrics-prefix", c.metrics_prefix,
                   "of /metrics; vllm makes its dashboards fit")
      ->capture_default_str();
  command->add_option("--settings", o->settings,
                      "a TOML file with values for these options, by their long names");
  add_parallel(*command, o->parallel);
  add_sequence(*command, o->parallel);
  command->footer(
      "Examples:\n"
      "  braid serve -m model.gguf\n"
      "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}]}'");
  command->callback([o, command] {
    if (!o->settings.empty()) apply_settings(*command, o->settings);
    require_one_process(o->parallel.job, "serve");
    require_between("--port", o->server.http.port, 0, 65535);
    require_between("--max-running", o->server.scheduler.max_running, 1, 4096);
    require_between("--max-step-tokens", o->server.scheduler.max_step_tokens, 1, kMostTokens);
    const bool alone = command->count("--sp") + command->count("--keep") > 0;
    if (alone && command->count("--max-step-tokens") == 0) {
      o->server.scheduler.max_step_tokens = 0;  // as many as fit
    }
    require_between("--max-model-len", o->server.engine.max_context, 0, kMostTokens);
    require_between("--max-waiting", o->server.scheduler.max_waiting, 1, 1 << 20);
    if (o->sampling != "auto" && o->sampling != "host") {
      fail(ErrorCode::kInvalidArgument, "--sampling is '{}', wanted auto or host", o->sampling);
    }
    if (o->log != "text" && o->log != "json" && o->log != "none") {
      fail(ErrorCode::kInvalidArgument, "--log is '{}', wanted text, json or none", o->log);
    }
    serve(*o, settings_text(*command));
  });
}

}  // namespace braid::app
