#include "braid/server/routes/request_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <random>

namespace braid::server {
namespace {

constexpr size_t kMostStops = 16;
constexpr size_t kMostPrompts = 2048;

std::vector<std::string> stops_of(const Body& body) {
  const Json* stop = body.find("stop");
  if (stop == nullptr) return {};
  std::vector<std::string> stops;
  for (const Json& text : stop->is_array() ? *stop : Json::array({*stop})) {
    if (!text.is_string() || text.get<std::string>().empty()) {
      Body::fail("stop", "stop has something other than texts of at least one character");
    }
    stops.push_back(text.get<std::string>());
  }
  if (stops.size() > kMostStops)
    Body::fail("stop",
               fmt::format("stop has {} texts, at most {} are allowed", stops.size(), kMostStops));
  return stops;
}

std::vector<std::pair<int32_t, float>> bias_of(const Body& body, int64_t vocabulary) {
  const Json* bias = body.find("logit_bias");
  if (bias == nullptr) return {};
  std::vector<std::pair<int32_t, float>> all;
  for (const auto& [key, value] : bias->items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocabulary) {
      Body::fail("logit_bias",
                 fmt::format("logit_bias names the token '{}', wanted ids from 0 to {}", key,
                             vocabulary - 1));
    }
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100)) {
      Body::fail("logit_bias",
                 fmt::format("logit_bias of token {} is no number from -100 to 100", key));
    }
    all.emplace_back(id, value.get<float>());
  }
  return all;
}

}  // namespace

std::vector<TextPrompt> text_prompts(const Service& service, const Json& prompt) {
  const auto of_text = [&](const Json& text) {
    return TextPrompt{service.tokenizer().encode(text.get<std::string>()), text.get<std::string>()};
  };
  const auto of_ids = [&](const Json& list) {
    TextPrompt one{ids_of(list, "prompt", service.vocabulary()), ""};
    for (const int32_t id : one.ids) {
      if (id >= service.tokenizer().vocab_size()) continue;
      one.text += service.tokenizer().bytes(id);
    }
    return one;
  };
  if (prompt.is_string()) return {of_text(prompt)};
  if (prompt.empty()) Body::fail("prompt", "prompt is an empty list");
  if (prompt.size() > kMostPrompts && !prompt[0].is_number()) {
    Body::fail("prompt", fmt::format("prompt has {} prompts, at most {} are allowed", prompt.size(),
                                     kMostPrompts));
  }
  if (prompt[0].is_number()) return {of_ids(prompt)};
  std::vector<TextPrompt> all;
  for (const Json& one : prompt) {
    if (one.is_string()) {
      all.push_back(of_text(one));
    } else if (one.is_array() && !one.empty()) {
      all.push_back(of_ids(one));
    } else {
      Body::fail("prompt", "prompt has something other than texts and lists of token ids");
    }
  }
  return all;
}

AnswerRequest answer_request(const Service& service, const Body& body, const std::string& client) {
  const SamplingParams& otherwise = service.defaults;
  AnswerRequest request;
  SamplingParams& s = request.sampling;
  s.temperature = static_cast<float>(body.number("temperature", otherwise.temperature));
  s.top_p = static_cast<float>(body.number("top_p", otherwise.top_p));
  s.top_k = static_cast<int32_t>(std::max<int64_t>(0, body.integer("top_k", otherwise.top_k)));
  s.min_p = static_cast<float>(body.number("min_p", otherwise.min_p));
  s.frequency_penalty = static_cast<float>(body.number("frequency_penalty", 0));
  s.presence_penalty = static_cast<float>(body.number("presence_penalty", 0));
  s.repetition_penalty =
      static_cast<float>(body.number("repetition_penalty", otherwise.repetition_penalty));
  s.logit_bias = bias_of(body, service.vocabulary());
  // An unnamed seed differs each time.
  s.seed = body.integer("seed") ? static_cast<uint64_t>(*body.integer("seed"))
                                : (uint64_t{std::random_device{}()} << 32 | std::random_device{}());
  request.min_tokens = body.integer("min_tokens", 0);
  request.max_tokens = body.integer("max_completion_tokens", body.integer("max_tokens", 0));
  request.stop = stops_of(body);
  if (const Json* ids = body.find("stop_token_ids"))
    request.stop_ids = ids_of(*ids, "stop_token_ids", service.vocabulary());
  request.include_stop = body.boolean("include_stop_str_in_output", false);
  request.ignore_eos = body.boolean("ignore_eos", false);
  request.skip_special = body.boolean("skip_special_tokens", true);
  request.exact = body.boolean("exact", false);
  request.key = client;
  // No key's name has a line's end.
  if (service.cache_per_key) request.salt = client + '\n';
  request.salt += body.string("cache_salt").value_or("");
  return request;
}

void check_model(const Service& service, const Body& body) {
  const auto name = body.string("model");
  if (!name || name->empty() || *name == service.name) return;
  throw ApiError(
      404, fmt::format("the model '{}' is not here; the served one is '{}'", *name, service.name),
      "model");
}

std::string unknown_fields(const Body& body) {
  constexpr size_t kMost = 200;
  std::string names;
  for (const std::string& name : body.unknown()) {
    if (names.size() > kMost) break;
    names += (names.empty() ? ", unknown fields: " : ", ") +
             Json(name.substr(0, 40)).dump(-1, ' ', true, Json::error_handler_t::replace);
  }
  return names;
}

}  // namespace braid::server
