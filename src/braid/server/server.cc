#include "braid/server/server.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "braid/base/clock.h"
#include "braid/base/fnv.h"
#include "braid/engine/describe_cluster.h"
#include "braid/engine/engine.h"
#include "braid/engine/world.h"

namespace braid::server {
namespace {

constexpr double kLastWords = 5;  // seconds for ends that were told to come

std::string now_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm tm{};
  gmtime_r(&seconds, &tm);
  char text[32];
  const size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
  return fmt::format("{}.{:03}Z", std::string_view(text, n), ms);
}

// Equal where a request alone gets the same text for the same seed: version, model, and what
// decides the plan of its steps.
std::string fingerprint_of(const ServerConfig& config, const Engine& engine) {
  const EngineConfig& e = engine.config();
  Fnv hash;
  for (const std::string_view text :
       {std::string_view(config.version), std::string_view(config.model),
        std::string_view(e.schedule), std::string_view(e.decode), name(*e.kv_dtype)}) {
    hash.add(text);
  }
  hash.add(identity(engine.loaded().model));
  hash.add(e.device.cuda ? gpu_name(e.device.first_gpu()) : "cpu");
  for (const int64_t n : {e.tp, e.ep, e.dp, static_cast<int>(config.sample_on_host)}) hash.add(n);
  return fmt::format("fp_{:016x}", hash.value());
}

// A model's own name: its folder's or file's, without the ending.
std::string name_of(const std::string& path) {
  const std::filesystem::path p = std::filesystem::path(path).lexically_normal();
  const std::filesystem::path last = p.has_filename() ? p.filename() : p.parent_path().filename();
  return last.extension() == ".gguf" ? last.stem().string() : last.string();
}

}  // namespace

struct Server::Impl {
  Impl(ServerConfig c, Say s)
      : config(std::move(c)),
        say(std::move(s)),
        router(config.keys, config.version),
        http(std::make_unique<HttpServer>(
            config.http, [this](Exchange& exchange) { return router.handle(exchange); },
            [this](const Exchange& exchange, int status, double seconds) {
              log(exchange, status, seconds);
            })) {}
  ~Impl() {
    http.reset();     // no exchange asks for anything any more
    service.reset();  // before the engine that it names
  }

  void load();
  // OpenAI's defaults, unless the model's file recommends others.
  SamplingParams defaults_of(const Engine& model) const;
  void log(const Exchange& exchange, int status, double seconds);
  // Seconds since the engine ended a step or an idle turn.
  double silence() const { return steady_seconds() - engine->stats().last_turn; }
  bool hangs() const {
    return engine->stats().error.empty() && silence() > kHangsUntilEnd * config.hang_seconds;
  }

  ServerConfig config;
  const Say say;
  Router router;
  std::unique_ptr<HttpServer> http;
  std::optional<Metrics> metrics;
  StepLanes lanes;
  std::unique_ptr<GrammarStore> grammars;  // outlives the engine's steps with its grammars
  std::unique_ptr<Engine> engine;
  std::atomic<bool> abandoned{false};
  std::optional<Service> service;
  std::mutex log_mutex;
};

SamplingParams Server::Impl::defaults_of(const Engine& model) const {
  if (config.defaults) return *config.defaults;
  SamplingParams defaults = model.default_sampling(false);
  if (defaults.temperature == 0) defaults.temperature = 1;
  return defaults;
}

void Server::Impl::load() {
  // On GPUs a measured step is another one: no graph runs.
  const bool measured = !config.engine.device.cuda && !config.engine.on_step;
  if (measured) {
    config.engine.on_step = [this, ranks = config.engine.tp](const Runner& runner) {
      lanes.add(runner, ranks);
    };
  }
  engine = std::make_unique<Engine>(
      config.open ? config.open() : std::make_unique<LoadedModel>(config.model), config.engine,
      RequestLimits{.scheduler = config.scheduler,
                    .kv_bytes = config.kv_bytes,
                    .graph_bytes = config.graph_bytes,
                    .sample_on_host = config.sample_on_host,
                    .say = say});
  const SchedulerConfig& limits = engine->limits();
  const std::string name = config.name.empty() ? name_of(config.model) : config.name;
  metrics.emplace(config.metrics_prefix, name, limits);
  const ChatPrompt* const chat = engine->chat();
  const ReasoningMarks marks = chat != nullptr ? reasoning_marks(chat->source()) : ReasoningMarks{};
  const CallFormat calls =
      chat != nullptr && chat->knows_tools() ? call_format(chat->source()) : CallFormat::none;
  if (!GrammarLibrary::version().empty()) {
    grammars = std::make_unique<GrammarStore>(engine->loaded().tokenizer, engine->model_config().V,
                                              config.grammars);
  }
  service.emplace(Service{.loaded = engine->loaded(),
                          .loop = engine->requests(),
                          .chat = chat,
                          .marks = marks,
                          .calls = calls,
                          .grammars = grammars.get(),
                          .name = name,
                          .fingerprint = fingerprint_of(config, *engine),
                          .max_context = engine->max_context(),
                          .defaults = defaults_of(*engine),
                          .metrics = *metrics,
                          .lanes = measured ? &lanes : nullptr,
                          .limits = limits,
                          .cache_per_key = config.cache_per_key,
                          .hang_seconds = config.hang_seconds,
                          .created = std::chrono::duration_cast<std::chrono::seconds>(
                                         std::chrono::system_clock::now().time_since_epoch())
                                         .count(),
                          .abandoned = abandoned});
  say(fmt::format(
      "model {}: context {} tokens, KV cache {} pages of {} tokens ({:.1f} MiB), {} sequences at "
      "once, steps of {} tokens at most{}",
      name, limits.max_context, limits.pages, limits.page_size,
      static_cast<double>(limits.pages * limits.page_size * engine->kv_token_bytes()) / (1 << 20),
      limits.max_running, limits.max_step_tokens, limits.prefix_cache ? "" : ", no prefix cache"));
  const SamplingParams& d = service->defaults;
  say(
      fmt::format("sampling unless a request says otherwise: temperature {}, top_p {}, top_k {}, "
                  "min_p {}, repetition_penalty {}",
                  d.temperature, d.top_p, d.top_k, d.min_p, d.repetition_penalty));
  if (service->chat == nullptr) {
    say("the model has no chat template: /v1/chat/completions answers 400");
  } else {
    say(fmt::format("chat template: reasoning {}, calls of tools {}",
                    marks.open.empty() ? "none" : "in " + marks.open, to_string(calls)));
  }
  router.serve(*service);
}

void Server::Impl::log(const Exchange& exchange, int status, double seconds) {
  if (config.log == LogFormat::none) return;
  // The page at `/` asks each second.
  if (status == 200 && (exchange.path() == "/stats" || exchange.path() == "/step.svg")) return;
  const std::string_view traceparent = exchange.header("traceparent");
  std::string line;
  if (config.log == LogFormat::json) {
    Json entry = {{"time", now_text()}, {"method", exchange.method()}, {"path", exchange.path()},
                  {"status", status},   {"seconds", seconds},          {"request_id", exchange.id}};
    if (!exchange.client.empty()) entry["client"] = exchange.client;
    if (!exchange.note.empty()) entry["note"] = exchange.note;
    if (!traceparent.empty()) entry["traceparent"] = traceparent;
    line = entry.dump(-1, ' ', false, Json::error_handler_t::replace);
  } else {
    line = fmt::format("{} {} {} {} {:.3f} s {}{}{}", now_text(), exchange.method(),
                       exchange.path(), status, seconds, exchange.id,
                       exchange.client.empty() ? "" : " " + exchange.client,
                       exchange.note.empty() ? "" : ": " + exchange.note);
  }
  const std::lock_guard lock(log_mutex);
  std::fprintf(stderr, "%s\n", line.c_str());
}

Server::Server(ServerConfig config, Say say)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(say))) {}

Server::~Server() = default;

int Server::port() const {
  return impl_->http->port();
}

void Server::load() {
  impl_->load();
}

Drained Server::drain() {
  impl_->router.drain();
  if (impl_->engine == nullptr) return Drained::whole;
  Engine& engine = *impl_->engine;
  Drained drained = Drained::whole;
  if (!engine.drain(impl_->hangs() ? 0 : impl_->config.drain_seconds)) {
    engine.requests().cancel_all();
    drained = engine.drain(kLastWords) ? Drained::cut : Drained::hung;
    impl_->abandoned = drained == Drained::hung;
  }
  // Answers and errors that were made have to reach their clients.
  const double deadline = steady_seconds() + kLastWords;
  impl_->http->stop_accepting();
  while (impl_->http->busy() > 0 && steady_seconds() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return drained;
}

std::string Server::error() const {
  if (impl_->engine == nullptr) return "";
  if (impl_->hangs()) return fmt::format("a step has not ended for {:.0f} s", impl_->silence());
  return impl_->engine->stats().error;
}

}  // namespace braid::server
