#include "braid/server/routes/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "braid/base/clock.h"
#include "braid/server/page/page_files.h"
#include "braid/server/routes/answers.h"
#include "braid/server/routes/messages.h"
#include "braid/server/routes/request_parts.h"
#include "braid/server/schema/endpoints.h"

namespace braid::server {
namespace {

namespace asio = boost::asio;

// The time does not depend on where two texts differ.
bool same(std::string_view a, std::string_view b) {
  unsigned char differ = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    differ |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  }
  return differ == 0;
}

bool is_json(std::string_view type) {
  std::string lower;
  for (const char c : type.substr(0, type.find(';'))) {
    if (c != ' ') lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return lower.empty() || lower == "application/json" || lower.ends_with("+json");
}

Json models(const Service& service) {
  Json model = {{"id", service.name},
                {"object", "model"},
                {"created", service.created},
                {"owned_by", "braid"},
                {"max_model_len", service.max_context}};
  return {{"object", "list"}, {"data", Json::array({std::move(model)})}};
}

// Data of the page at `/`, besides pictures; counts rise from the start on.
Json numbers(const Service& service) {
  const RequestStats stats = service.loop.stats();
  const Scheduler::Counts& counts = stats.scheduler;
  const KvStore::Counts& pages = counts.pages;
  return {
      {"model", service.name},
      {"seconds", steady_seconds()},  // on this machine's clock: only differences mean something
      {"running", counts.running},
      {"waiting", counts.waiting},
      {"max_running", service.limits.max_running},
      {"step_tokens", stats.step_tokens},
      {"max_step_tokens", service.limits.max_step_tokens},
      {"steps", stats.steps},
      {"step_seconds", stats.step_seconds},
      {"prompt_tokens", stats.prompt_tokens},
      {"answer_tokens", stats.answer_tokens},
      {"preemptions", counts.preemptions},
      {"prefix_queries", counts.prefix_queries},
      {"prefix_hits", counts.prefix_hits},
      {"approximate_passed", counts.approximate_passed},
      {"oldest_wait", stats.oldest_wait},
      {"kv_pages",
       {{"held", pages.held},
        {"cached", pages.cached},
        {"total", pages.held + pages.cached + pages.free},
        {"tokens", service.limits.page_size}}}};
}

std::string last_step(const Service& service) {
  if (service.lanes == nullptr) throw ApiError(404, "steps are measured on CPU ranks alone");
  std::string svg = service.lanes->svg();
  if (svg.empty()) throw ApiError(404, "no step was measured yet");
  return svg;
}

// The page's file at a path, null for other paths.
const EmbeddedFile* page_file(std::string_view path) {
  const std::string_view name = path == "/" ? "index.html" : path.substr(1);
  const auto files = page_files();
  const auto file = std::ranges::find(files, name, &EmbeddedFile::name);
  return file == files.end() ? nullptr : &*file;
}

Json tokenize(const Service& service, const Body& body) {
  std::vector<int32_t> ids;
  if (body.find("messages") != nullptr) {
    ids = chat_request(service, body).prompt;
  } else {
    auto text = body.string("prompt");
    if (!text) text = body.string("content");
    if (!text) Body::fail("prompt", "prompt is missing: wanted prompt or messages");
    const bool special = body.boolean("add_special_tokens", true);
    ids = service.tokenizer().encode(*text, {.add_special = special});
  }
  return {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", service.max_context}};
}

Json detokenize(const Service& service, const Body& body) {
  const std::vector<int32_t> ids =
      ids_of(*body.find("tokens"), "tokens", service.tokenizer().vocab_size());
  return {{"prompt", service.tokenizer().decode(ids, {.skip_special = false})}};
}

Json render(const Service& service, const Body& body) {
  const std::vector<int32_t> ids = chat_request(service, body).prompt;
  return {{"prompt", service.tokenizer().decode(ids, {.skip_special = false})},
          {"prompt_token_ids", ids}};
}

// The answer to a POST that needs no step.
Json answer_at_once(const Service& service, std::string_view path, const Body& body) {
  check_model(service, body);
  if (path == "/tokenize") return tokenize(service, body);
  if (path == "/detokenize") return detokenize(service, body);
  return render(service, body);
}

Json status(std::string_view text) {
  return {{"status", text}};
}

Json version_of(const std::string& version) {
  return {{"version", version}};
}

}  // namespace

std::vector<ApiKey> read_api_keys(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(ErrorCode::kNotFound, "cannot open {}", path);
  std::vector<ApiKey> keys;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0)
      line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    ApiKey key{fmt::format("key-{}", keys.size() + 1), line};
    if (const size_t colon = line.find(": "); colon != std::string::npos) {
      key = {line.substr(0, colon), line.substr(line.find_first_not_of(' ', colon + 1))};
    }
    if (key.value.find_first_of(" \t") != std::string::npos) {
      fail(ErrorCode::kMalformed, "{}:{}: a key has no spaces; wanted \"name: key\" or a key alone",
           path, number);
    }
    if (std::ranges::any_of(keys, [&](const ApiKey& other) { return other.value == key.value; })) {
      fail(ErrorCode::kMalformed, "{}:{}: the key of '{}' stands there twice", path, number,
           key.name);
    }
    keys.push_back(std::move(key));
  }
  if (keys.empty()) fail(ErrorCode::kMalformed, "{} holds no key", path);
  return keys;
}

void Router::authorize(Exchange& exchange) const {
  if (keys_.empty()) return;
  std::string_view given = exchange.header("Authorization");
  if (given.starts_with("Bearer ")) {
    given.remove_prefix(7);
  } else {
    given = exchange.header("X-Api-Key");
  }
  for (const ApiKey& key : keys_) {
    if (same(given, key.value))
      exchange.client = key.name;  // all keys are looked at, whichever fits
  }
  if (exchange.client.empty())
    throw ApiError(401, given.empty() ? "no API key was given" : "the API key is not known");
}

asio::awaitable<void> Router::health(Exchange& exchange, bool ready) {
  Service* const service = service_;
  const Phase phase = phase_;
  if (service == nullptr) {
    if (!ready) co_return co_await exchange.json(200, status("loading"));
    throw ApiError(503, "the model is being loaded");
  }
  const RequestStats stats = service->loop.stats();
  const double silent = steady_seconds() - stats.last_turn;
  if (!stats.error.empty()) throw ApiError(503, "the engine has ended: " + stats.error);
  if (silent > service->hang_seconds)
    throw ApiError(503, fmt::format("the engine has ended no step for {:.0f} s", silent));
  if (ready && phase == Phase::draining) throw ApiError(503, "the server is ending");
  co_await exchange.json(200, status("ok"));
}

asio::awaitable<void> Router::handle(Exchange& exchange) {
  const std::string_view path = exchange.path();
  const Endpoint* found = nullptr;
  std::string methods;
  for (const Endpoint& endpoint : endpoints()) {
    if (endpoint.path != path) continue;
    methods += (methods.empty() ? "" : ", ") + std::string(endpoint.method);
    if (endpoint.method == exchange.method() ||
        (exchange.method() == "HEAD" && endpoint.method == "GET")) {
      found = &endpoint;
    }
  }
  if (found == nullptr || !found->open) authorize(exchange);
  if (methods.empty()) throw ApiError(404, fmt::format("there is no {}", path.substr(0, 100)));
  exchange.allow = methods;
  if (found == nullptr)
    throw ApiError(405, fmt::format("{} takes {}, not {}", path, methods, exchange.method()));
  if (path == "/health" || path == "/health/ready") co_return co_await health(exchange, true);
  if (path == "/health/live") co_return co_await health(exchange, false);
  if (path == "/version") co_return co_await exchange.json(200, version_of(version_));
  if (path == "/openapi.json") co_return co_await exchange.json(200, openapi(version_));
  if (const EmbeddedFile* file = page_file(path)) {
    std::string text(file->text);
    co_return co_await exchange.send(200, found->type, std::move(text));
  }
  Service* const service = service_;
  if (service == nullptr) throw ApiError(503, "the model is being loaded");
  if (path == "/stats") co_return co_await exchange.json(200, numbers(*service));
  if (path == "/step.svg") {
    std::string svg = last_step(*service);
    co_return co_await exchange.send(200, found->type, std::move(svg));
  }
  if (path == "/metrics") {
    co_return co_await exchange.send(200, "text/plain; version=0.0.4",
                                     service->metrics.text(service->loop.stats()));
  }
  if (path == "/v1/models") co_return co_await exchange.json(200, models(*service));
  if (!is_json(exchange.header("Content-Type"))) {
    throw ApiError(415, fmt::format("the body's type is {}, wanted application/json",
                                    exchange.header("Content-Type")));
  }
  if (phase_ == Phase::draining) throw ApiError(503, "the server is ending");
  if (path == "/v1/completions") co_return co_await completions(*service, exchange);
  if (path == "/v1/chat/completions") co_return co_await chat_completions(*service, exchange);
  if (path == "/v1/responses") co_return co_await responses(*service, exchange);
  co_await exchange.json(200, answer_at_once(*service, path, Body(exchange.body(), found->fields)));
}

}  // namespace braid::server
