#include "braid/server/routes/answer_form.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace braid::server {
namespace {

std::string bytes_of(const Tokenizer& tokenizer, int32_t id) {
  return id < tokenizer.vocab_size() ? tokenizer.bytes(id) : "";
}

}  // namespace

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  // dump() with a replacement handler does the same for whatever is no UTF-8.
  const Json text = bytes_of(tokenizer, id);
  return Json::parse(event_text(text)).get<std::string>();
}

Json token_bytes(const Tokenizer& tokenizer, int32_t id) {
  Json bytes = Json::array();
  for (const char c : bytes_of(tokenizer, id)) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

double finite_logprob(float logprob) {
  return std::isfinite(logprob) ? std::max(-9999.0, static_cast<double>(logprob)) : -9999.0;
}

Json token_logprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens) {
  const auto entry = [&](int32_t id, float logprob) {
    return Json{{"token", token_text(tokenizer, id)},
                {"logprob", finite_logprob(logprob)},
                {"bytes", token_bytes(tokenizer, id)}};
  };
  Json list = Json::array();
  for (const SampledToken& token : tokens) {
    Json one = entry(token.id, token.logprob);
    one["top_logprobs"] = Json::array();
    for (const TokenLogprob& top : token.top)
      one["top_logprobs"].push_back(entry(top.id, top.logprob));
    list.push_back(std::move(one));
  }
  return list;
}

Usage usage_of(const std::vector<Choice>& choices, int choices_per_prompt) {
  Usage usage;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    usage.answer += choice.end ? choice.end->answer_tokens : choice.answer_tokens;
    usage.reasoning += choice.reasoning_tokens;
    if (i % static_cast<size_t>(choices_per_prompt) != 0) continue;
    usage.prompt += choice.prompt_length;
    if (choice.end) usage.cached += choice.end->cached_tokens;
  }
  return usage;
}

void add_approximation(Json& to, std::span<const Choice> choices) {
  std::optional<Approximation> all;
  for (const Choice& choice : choices) {
    if (!choice.end || !choice.end->approximate) continue;
    if (!all) all = Approximation{choice.end->approximate->levels, {}};
    all->shares += choice.end->approximate->shares;
  }
  if (all) to["approximate"] = json_of(*all);
}

// Mistral's templates take ids of nine letters and digits alone.
std::string call_id(CallFormat format) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::string id = format == CallFormat::mistral ? "" : "call_";
  const size_t size = format == CallFormat::mistral ? 9 : 29;
  while (id.size() < size) id += kLetters[random() % kLetters.size()];
  return id;
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string event_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace braid::server
