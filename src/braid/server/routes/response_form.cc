#include "braid/server/routes/response_form.h"

#include <fmt/format.h>

namespace braid::server {

ResponseForm::ResponseForm(const Service& service, Options options)
    : service_(service), options_(std::move(options)) {}

Json ResponseForm::response(const char* status) const {
  Json json = {{"id", "resp_" + options_.id},
               {"object", "response"},
               {"created_at", created_},
               {"status", status},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"model", service_.name},
               {"output", output_}};
  json.update(options_.settings);
  json["usage"] = nullptr;
  return json;
}

Json ResponseForm::ended(const std::vector<Choice>& choices) {
  const bool cut = choices[0].end->reason == AnswerReason::length;
  if (output_.empty()) open_text(Open::message);  // an answer without a single letter
  close(cut ? "incomplete" : "completed");
  Json json = response(cut ? "incomplete" : "completed");
  if (cut) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
  if (!cut) json["completed_at"] = unix_seconds();
  const Usage usage = usage_of(choices, 1);
  // Clients mark no part of a prompt to be kept: nothing is written on demand.
  json["usage"] = {
      {"input_tokens", usage.prompt},
      {"input_tokens_details", {{"cached_tokens", usage.cached}, {"cache_write_tokens", 0}}},
      {"output_tokens", usage.answer},
      {"output_tokens_details", {{"reasoning_tokens", usage.reasoning}}},
      {"total_tokens", usage.prompt + usage.answer}};
  add_approximation(json, choices);
  return json;
}

void ResponseForm::add_event(const char* type, Json members) {
  if (!options_.stream) return;
  Json json = {{"type", type}, {"sequence_number", sequence_++}};
  json.update(members);
  events_.push_back({event_text(json), type});
}

void ResponseForm::part_event(const char* type, Json more) {
  Json members = {{"item_id", output_.back()["id"]},
                  {"output_index", output_.size() - 1},
                  {"content_index", 0}};
  members.update(more);
  add_event(type, std::move(members));
}

void ResponseForm::open_item(Json item, const char* id_prefix) {
  close("completed");
  item["id"] = fmt::format("{}_{}_{}", id_prefix, options_.id, output_.size());
  item["status"] = "in_progress";
  output_.push_back(item);
  add_event("response.output_item.added",
            {{"output_index", output_.size() - 1}, {"item", std::move(item)}});
}

void ResponseForm::open_text(Open kind) {
  Json part;
  if (kind == Open::reasoning) {
    open_item({{"type", "reasoning"}, {"summary", Json::array()}, {"content", Json::array()}},
              "rs");
    part = {{"type", "reasoning_text"}, {"text", ""}};
  } else {
    open_item({{"type", "message"}, {"role", "assistant"}, {"content", Json::array()}}, "msg");
    part = {{"type", "output_text"},
            {"text", ""},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }
  open_ = kind;
  part_event("response.content_part.added", {{"part", part}});
  output_.back()["content"].push_back(std::move(part));
}

void ResponseForm::add_text(Open kind, const std::string& text,
                            const std::vector<SampledToken>& tokens) {
  if (open_ != kind) open_text(kind);
  Json& part = output_.back()["content"][0];
  part["text"].get_ref<std::string&>() += text;
  if (kind == Open::reasoning) {
    part_event("response.reasoning_text.delta", {{"delta", text}});
    return;
  }
  Json more = token_logprobs(service_.tokenizer(), tokens);
  part_event("response.output_text.delta", {{"delta", text}, {"logprobs", more}});
  for (Json& one : more) part["logprobs"].push_back(std::move(one));
}

void ResponseForm::add_call(const ToolCall& call) {
  open_item({{"type", "function_call"},
             {"call_id", call_id(options_.calls)},
             {"name", call.name},
             {"arguments", ""}},
            "fc");
  Json& item = output_.back();
  const size_t index = output_.size() - 1;
  item["arguments"] = call.arguments;
  item["status"] = "completed";
  add_event("response.function_call_arguments.delta",
            {{"item_id", item["id"]}, {"output_index", index}, {"delta", call.arguments}});
  add_event("response.function_call_arguments.done", {{"item_id", item["id"]},
                                                      {"output_index", index},
                                                      {"name", call.name},
                                                      {"arguments", call.arguments}});
  add_event("response.output_item.done", {{"output_index", index}, {"item", item}});
}

void ResponseForm::close(const char* status) {
  if (open_ == Open::nothing) return;
  Json& item = output_.back();
  const Json part = item["content"][0];
  if (open_ == Open::message) {
    part_event("response.output_text.done",
               {{"text", part["text"]}, {"logprobs", part["logprobs"]}});
  } else {
    part_event("response.reasoning_text.done", {{"text", part["text"]}});
  }
  part_event("response.content_part.done", {{"part", part}});
  item["status"] = status;
  add_event("response.output_item.done", {{"output_index", output_.size() - 1}, {"item", item}});
  open_ = Open::nothing;
}

std::vector<StreamEvent> ResponseForm::begin(const std::vector<Choice>& /*choices*/) {
  add_event("response.created", {{"response", response("in_progress")}});
  add_event("response.in_progress", {{"response", response("in_progress")}});
  return taken();
}

std::vector<StreamEvent> ResponseForm::piece(size_t /*index*/, const ChoicePiece& piece,
                                             const std::vector<Choice>& /*choices*/) {
  const AnswerParts& parts = piece.parts;
  if (!parts.reasoning.empty()) add_text(Open::reasoning, parts.reasoning, {});
  // Tokens of reasoning and its marks are no tokens of the message.
  if (open_ == Open::reasoning) pending_.clear();
  if (options_.logprobs) pending_.insert(pending_.end(), piece.tokens.begin(), piece.tokens.end());
  if (!parts.content.empty()) add_text(Open::message, parts.content, std::exchange(pending_, {}));
  for (const ToolCall& call : parts.calls) add_call(call);
  if (!parts.calls.empty()) pending_.clear();
  return taken();
}

std::vector<StreamEvent> ResponseForm::last(size_t /*index*/,
                                            const std::vector<Choice>& /*choices*/) {
  return {};  // the only choice's end is the whole end
}

std::vector<StreamEvent> ResponseForm::end(const std::vector<Choice>& choices) {
  Json json = ended(choices);
  const bool cut = json["status"] == "incomplete";
  add_event(cut ? "response.incomplete" : "response.completed", {{"response", std::move(json)}});
  return taken();
}

std::vector<StreamEvent> ResponseForm::failed(const ApiError& error) {
  close("incomplete");
  Json json = response("failed");
  json["error"] = {{"code", error.status() == 429 ? "rate_limit_exceeded" : "server_error"},
                   {"message", error.what()}};
  add_event("response.failed", {{"response", std::move(json)}});
  return taken();
}

Json ResponseForm::whole(const std::vector<Choice>& choices) {
  return ended(choices);
}

}  // namespace braid::server
