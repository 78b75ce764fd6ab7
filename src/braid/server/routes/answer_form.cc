#include "braid/server/routes/answer_form.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace braid::server {
namespace {

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string bytes_of(const Tokenizer& tokenizer, int32_t id) {
  return id < tokenizer.vocab_size() ? tokenizer.bytes(id) : "";
}

// Characters of valid UTF-8.
size_t utf8_length(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
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

Json head_of(const Service& service, const std::string& id, const char* object, int64_t created) {
  return {{"id", id}, {"object", object}, {"created", created}, {"model", service.name}};
}

}  // namespace

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  // dump() with a replacement handler does the same for whatever is no UTF-8.
  const Json text = bytes_of(tokenizer, id);
  return Json::parse(text.dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

Json token_bytes(const Tokenizer& tokenizer, int32_t id) {
  Json bytes = Json::array();
  for (const char c : bytes_of(tokenizer, id)) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

double finite_logprob(float logprob) {
  return std::isfinite(logprob) ? std::max(-9999.0, static_cast<double>(logprob)) : -9999.0;
}

Json usage_of(const std::vector<Choice>& choices, int choices_per_prompt) {
  int64_t prompt = 0, cached = 0, answer = 0, reasoning = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!choices[i].end) continue;
    const AnswerEnd& end = *choices[i].end;
    answer += end.answer_tokens;
    reasoning += choices[i].reasoning_tokens;
    if (i % static_cast<size_t>(choices_per_prompt) != 0) continue;
    prompt += end.prompt_tokens;
    cached += end.cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", answer},
          {"total_tokens", prompt + answer},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

ChatForm::ChatForm(const Service& service, std::string id, bool logprobs, CallFormat calls)
    : service_(service),
      id_("chatcmpl-" + std::move(id)),
      logprobs_(logprobs),
      calls_(calls),
      created_(unix_seconds()) {}

Json ChatForm::head(bool chunk) const {
  return head_of(service_, id_, chunk ? "chat.completion.chunk" : "chat.completion", created_);
}

Json ChatForm::first(int index) const {
  return {{"index", index},
          {"delta", {{"role", "assistant"}, {"content", ""}}},
          {"logprobs", nullptr},
          {"finish_reason", nullptr}};
}

Json ChatForm::logprobs_of(const std::vector<SampledToken>& tokens) const {
  if (!logprobs_) return nullptr;
  Json content = Json::array();
  for (const SampledToken& token : tokens) {
    const auto entry = [&](int32_t id, float logprob) {
      return Json{{"token", token_text(service_.tokenizer(), id)},
                  {"logprob", finite_logprob(logprob)},
                  {"bytes", token_bytes(service_.tokenizer(), id)}};
    };
    Json one = entry(token.id, token.logprob);
    one["top_logprobs"] = Json::array();
    for (const TokenLogprob& top : token.top)
      one["top_logprobs"].push_back(entry(top.id, top.logprob));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

std::vector<Json> ChatForm::piece(int index, const ChoicePiece& piece, const Choice& choice) const {
  std::vector<Json> chunks;
  const auto add = [&](Json delta) {
    chunks.push_back({{"index", index},
                      {"delta", std::move(delta)},
                      {"logprobs", nullptr},
                      {"finish_reason", nullptr}});
  };
  const AnswerParts& parts = piece.parts;
  if (!parts.reasoning.empty()) add({{"reasoning_content", parts.reasoning}});
  if (!parts.content.empty()) add({{"content", parts.content}});
  size_t number = choice.calls.size() - parts.calls.size();
  for (const ToolCall& call : parts.calls) {
    add({{"tool_calls", Json::array({{{"index", number},
                                      {"id", call_id(calls_)},
                                      {"type", "function"},
                                      {"function", {{"name", call.name}, {"arguments", ""}}}}})}});
    add({{"tool_calls",
          Json::array({{{"index", number}, {"function", {{"arguments", call.arguments}}}}})}});
    ++number;
  }
  if (chunks.empty() && !piece.tokens.empty()) add({{"content", ""}});
  if (!chunks.empty()) chunks[0]["logprobs"] = logprobs_of(piece.tokens);
  return chunks;
}

Json ChatForm::last(int index, std::string_view reason) const {
  return {{"index", index},
          {"delta", Json::object()},
          {"logprobs", nullptr},
          {"finish_reason", reason}};
}

Json ChatForm::whole(int index, const Choice& choice, std::string_view reason) const {
  Json message = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
  if (choice.text.empty() && (!choice.reasoning.empty() || !choice.calls.empty()))
    message["content"] = nullptr;
  for (const ToolCall& call : choice.calls) {
    message["tool_calls"].push_back(
        {{"id", call_id(calls_)},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return {{"index", index},
          {"message", std::move(message)},
          {"logprobs", logprobs_of(choice.tokens)},
          {"finish_reason", reason}};
}

TextForm::TextForm(const Service& service, std::string id, bool logprobs, int choices_per_prompt,
                   Echo echo, bool answer)
    : service_(service),
      id_("cmpl-" + std::move(id)),
      logprobs_(logprobs),
      per_prompt_(choices_per_prompt),
      echo_(std::move(echo)),
      answer_(answer),
      created_(unix_seconds()) {}

Json TextForm::head(bool /*chunk*/) const {
  return head_of(service_, id_, "text_completion", created_);
}

Json TextForm::first(int index) const {
  if (echo_.texts.empty() || logprobs_) return nullptr;  // the scores have to come first
  return {{"index", index},
          {"text", echo_.texts[prompt_of(index)]},
          {"logprobs", nullptr},
          {"finish_reason", nullptr}};
}

Json TextForm::logprobs_of(const std::vector<Scored>& tokens, size_t offset) const {
  if (!logprobs_) return nullptr;
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const Scored& scored : tokens) {
    const std::string text = token_text(service_.tokenizer(), scored.id);
    texts.push_back(text);
    offsets.push_back(offset);
    offset += utf8_length(text);
    if (scored.token == nullptr) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(finite_logprob(scored.token->logprob));
    Json top = Json::object();
    for (const TokenLogprob& t : scored.token->top) {
      top[token_text(service_.tokenizer(), t.id)] = finite_logprob(t.logprob);
    }
    top[text] = finite_logprob(scored.token->logprob);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

std::vector<Json> TextForm::piece(int index, const ChoicePiece& piece, const Choice& choice) const {
  std::vector<Scored> scored;
  std::string text;
  size_t offset = utf8_length(choice.text) - utf8_length(piece.parts.content);
  if (!echo_.texts.empty()) {
    const size_t prompt = prompt_of(index);
    if (logprobs_ && !piece.prompt.empty()) {
      text = echo_.texts[prompt];
      scored.push_back({echo_.ids[prompt][0], nullptr});
      for (const SampledToken& token : piece.prompt) scored.push_back({token.id, &token});
    } else {
      offset += utf8_length(echo_.texts[prompt]);
    }
  }
  if (answer_) {
    text += piece.parts.content;
    for (const SampledToken& token : piece.tokens) scored.push_back({token.id, &token});
  }
  if (text.empty() && scored.empty()) return {};
  Json chunk = {{"index", index},
                {"text", text},
                {"logprobs", logprobs_of(scored, offset)},
                {"finish_reason", nullptr}};
  return {std::move(chunk)};
}

Json TextForm::last(int index, std::string_view reason) const {
  return {{"index", index}, {"text", ""}, {"logprobs", nullptr}, {"finish_reason", reason}};
}

Json TextForm::whole(int index, const Choice& choice, std::string_view reason) const {
  std::vector<Scored> scored;
  std::string text;
  if (!echo_.texts.empty()) {
    const size_t prompt = prompt_of(index);
    text = echo_.texts[prompt];
    scored.push_back({echo_.ids[prompt][0], nullptr});
    for (const SampledToken& token : choice.prompt_tokens) scored.push_back({token.id, &token});
  }
  if (answer_) {
    text += choice.text;
    for (const SampledToken& token : choice.tokens) scored.push_back({token.id, &token});
  }
  return {{"index", index},
          {"text", text},
          {"logprobs", logprobs_of(scored, 0)},
          {"finish_reason", reason}};
}

}  // namespace braid::server
