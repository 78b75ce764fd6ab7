#include "braid/server/routes/choices_form.h"

#include <algorithm>

namespace braid::server {
namespace {

// A finish_reason in clients' words.
std::string_view reason_of(const Choice& choice) {
  if (choice.end->reason == AnswerReason::length) return "length";
  return choice.calls.empty() ? "stop" : "tool_calls";
}

// Characters in valid UTF-8.
size_t utf8_length(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

Json usage_json(const std::vector<Choice>& choices, int choices_per_prompt) {
  const Usage usage = usage_of(choices, choices_per_prompt);
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.answer},
          {"total_tokens", usage.prompt + usage.answer},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning}}}};
}

}  // namespace

Json ChoicesForm::head(const char* object) const {
  return {{"id", common_.id},
          {"object", object},
          {"created", created_},
          {"model", service_.name},
          {"system_fingerprint", service_.fingerprint}};
}

Json ChoicesForm::chunk_json(Json choice, const std::vector<Choice>& choices) const {
  Json object = head(chunk_);
  object["choices"] = Json::array({std::move(choice)});
  if (common_.stream.usage_always) {
    object["usage"] = usage_json(choices, common_.choices_per_prompt);
  } else if (common_.stream.usage) {
    object["usage"] = nullptr;
  }
  return object;
}

StreamEvent ChoicesForm::chunk(Json choice, const std::vector<Choice>& choices) const {
  return {event_text(chunk_json(std::move(choice), choices))};
}

std::vector<StreamEvent> ChoicesForm::begin(const std::vector<Choice>& choices) {
  std::vector<StreamEvent> events;
  for (size_t i = 0; i < choices.size(); ++i) {
    Json one = first(i);
    if (!one.is_null()) events.push_back(chunk(std::move(one), choices));
  }
  return events;
}

std::vector<StreamEvent> ChoicesForm::piece(size_t index, const ChoicePiece& piece,
                                            const std::vector<Choice>& choices) {
  if (!common_.stream.stream) return {};
  std::vector<StreamEvent> events;
  for (Json& one : pieces(index, piece, choices[index]))
    events.push_back(chunk(std::move(one), choices));
  return events;
}

std::vector<StreamEvent> ChoicesForm::last(size_t index, const std::vector<Choice>& choices) {
  Json object = chunk_json(final(index, reason_of(choices[index])), choices);
  add_approximation(object, std::span(choices).subspan(index, 1));
  return {{event_text(object)}};
}

std::vector<StreamEvent> ChoicesForm::end(const std::vector<Choice>& choices) {
  std::vector<StreamEvent> events;
  if (common_.stream.usage) {
    Json object = head(chunk_);
    object["choices"] = Json::array();
    object["usage"] = usage_json(choices, common_.choices_per_prompt);
    events.push_back({event_text(object)});
  }
  events.push_back({"[DONE]"});
  return events;
}

std::vector<StreamEvent> ChoicesForm::failed(const ApiError& error) {
  return {{event_text(error.json())}, {"[DONE]"}};
}

Json ChoicesForm::whole(const std::vector<Choice>& choices) {
  Json object = head(object_);
  object["choices"] = Json::array();
  for (size_t i = 0; i < choices.size(); ++i)
    object["choices"].push_back(whole_choice(i, choices[i], reason_of(choices[i])));
  object["usage"] = usage_json(choices, common_.choices_per_prompt);
  add_approximation(object, choices);
  return object;
}

ChatForm::ChatForm(const Service& service, Common common, CallFormat calls)
    : ChoicesForm(service, std::move(common), "chat.completion", "chat.completion.chunk"),
      calls_(calls) {}

Json ChatForm::first(size_t index) const {
  return {{"index", index},
          {"delta", {{"role", "assistant"}, {"content", ""}}},
          {"logprobs", nullptr},
          {"finish_reason", nullptr}};
}

Json ChatForm::logprobs_of(const std::vector<SampledToken>& tokens) const {
  if (!common_.logprobs) return nullptr;
  return {{"content", token_logprobs(service_.tokenizer(), tokens)}, {"refusal", nullptr}};
}

std::vector<Json> ChatForm::pieces(size_t index, const ChoicePiece& piece,
                                   const Choice& choice) const {
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

Json ChatForm::final(size_t index, std::string_view reason) const {
  return {{"index", index},
          {"delta", Json::object()},
          {"logprobs", nullptr},
          {"finish_reason", reason}};
}

Json ChatForm::whole_choice(size_t index, const Choice& choice, std::string_view reason) const {
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

TextForm::TextForm(const Service& service, Common common, Echo echo, bool answer)
    : ChoicesForm(service, std::move(common), "text_completion", "text_completion"),
      echo_(std::move(echo)),
      answer_(answer) {}

Json TextForm::first(size_t index) const {
  if (echo_.texts.empty() || common_.logprobs) return nullptr;  // the scores have to come first
  return {{"index", index},
          {"text", echo_.texts[prompt_of(index)]},
          {"logprobs", nullptr},
          {"finish_reason", nullptr}};
}

Json TextForm::logprobs_of(const std::vector<Scored>& tokens, size_t offset) const {
  if (!common_.logprobs) return nullptr;
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

std::vector<Json> TextForm::pieces(size_t index, const ChoicePiece& piece,
                                   const Choice& choice) const {
  std::vector<Scored> scored;
  std::string text;
  size_t offset = utf8_length(choice.text) - utf8_length(piece.parts.content);
  if (!echo_.texts.empty()) {
    const size_t prompt = prompt_of(index);
    if (common_.logprobs && !piece.prompt.empty()) {
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

Json TextForm::final(size_t index, std::string_view reason) const {
  return {{"index", index}, {"text", ""}, {"logprobs", nullptr}, {"finish_reason", reason}};
}

Json TextForm::whole_choice(size_t index, const Choice& choice, std::string_view reason) const {
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
