#include "braid/server/routes/response_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/server/routes/messages.h"

namespace braid::server {
namespace {

constexpr std::string_view kTextParts[] = {"input_text", "output_text", "text", "refusal"};
constexpr std::string_view kReasoningParts[] = {"reasoning_text", "summary_text", "text"};

[[noreturn]] void fail(const std::string& message) {
  Body::fail("input", message);
}

// A member that must be a text.
std::string text_at(const Json& item, const char* name, const std::string& where) {
  const Json* value = member(item, name);
  if (value == nullptr) fail(fmt::format("{}.{} is missing", where, name));
  if (!value->is_string()) fail(fmt::format("{}.{} is no text", where, name));
  return value->get<std::string>();
}

// Makes messages from items, one by one.
class Conversation {
 public:
  explicit Conversation(Json& messages) : messages_(messages) {}

  void add(const Json& item, const std::string& where) {
    if (!item.is_object()) fail(where + " is no object");
    const std::string type =
        member(item, "type") == nullptr ? "message" : text_at(item, "type", where);
    if (type == "message") return add_message(item, where);
    if (type == "reasoning") return add_reasoning(item, where);
    if (type == "function_call") return add_call(item, where);
    if (type == "function_call_output") return add_result(item, where);
    if (type == "item_reference")
      fail(where + " is a reference: this server stores no items, send them whole");
    fail(
        fmt::format("{}.type is '{}', wanted message, reasoning, function_call or "
                    "function_call_output",
                    where, type));
  }

 private:
  static std::string content_of(const Json& item, const char* name, const std::string& where) {
    const Json* content = member(item, name);
    if (content == nullptr) fail(fmt::format("{}.{} is missing", where, name));
    return content_text(*content, "input", fmt::format("{}.{}", where, name), kTextParts);
  }

  void add_message(const Json& item, const std::string& where) {
    const std::string role = text_at(item, "role", where);
    const std::string text = content_of(item, "content", where);
    if (role == "assistant") {
      Json& turn = assistant(!last_has("content") && !last_has("tool_calls"));
      turn["content"] = text;
      return;
    }
    if (role != "user" && role != "system" && role != "developer") {
      fail(
          fmt::format("{}.role is '{}', wanted user, assistant, system or developer", where, role));
    }
    messages_.push_back({{"role", role == "user" ? "user" : "system"}, {"content", text}});
  }

  // Text that only another server can read is left out: templates drop earlier reasoning anyway.
  void add_reasoning(const Json& item, const std::string& where) {
    std::string text;
    for (const char* name : {"content", "summary"}) {
      const Json* parts = member(item, name);
      if (parts == nullptr || !text.empty()) continue;
      text = content_text(*parts, "input", fmt::format("{}.{}", where, name), kReasoningParts);
    }
    if (text.empty()) return;
    Json& turn = assistant(!last_has("content") && !last_has("tool_calls"));
    const std::string before = turn.value("reasoning_content", "");
    turn["reasoning_content"] = before.empty() ? text : before + "\n" + text;
  }

  void add_call(const Json& item, const std::string& where) {
    Json call = call_for_template(text_at(item, "name", where), text_at(item, "arguments", where));
    call["id"] = text_at(item, "call_id", where);
    assistant(true)["tool_calls"].push_back(std::move(call));
  }

  void add_result(const Json& item, const std::string& where) {
    messages_.push_back({{"role", "tool"},
                         {"content", content_of(item, "output", where)},
                         {"tool_call_id", text_at(item, "call_id", where)}});
  }

  bool last_has(const char* name) const {
    if (messages_.empty() || messages_.back()["role"] != "assistant") return false;
    const Json* value = member(messages_.back(), name);
    return value != nullptr && !value->empty() && *value != "";
  }

  // The assistant's turn at hand, if `join` allows more in it, or a new turn.
  Json& assistant(bool join) {
    if (!join || messages_.empty() || messages_.back()["role"] != "assistant")
      messages_.push_back({{"role", "assistant"}, {"content", ""}});
    return messages_.back();
  }

  Json& messages_;
};

}  // namespace

ChatMessages response_conversation(const Body& body) {
  ChatMessages conversation{.messages = Json::array()};
  Json& messages = conversation.messages;
  if (const auto text = body.string("instructions"))
    messages.push_back({{"role", "system"}, {"content", *text}});
  const Json& input = *body.find("input");
  if (input.is_string()) messages.push_back({{"role", "user"}, {"content", input}});
  if (input.is_array()) {
    Conversation items(messages);
    for (size_t i = 0; i < input.size(); ++i) items.add(input[i], fmt::format("input[{}]", i));
  }
  if (messages.empty()) fail("input is empty, wanted a text or at least one item");
  if (const Json* variables = body.find("chat_template_kwargs"))
    conversation.variables = *variables;
  const auto variable = [&](const char* field, const char* name, const char* variable) {
    const Json* object = body.find(field);
    const Json* value = object == nullptr ? nullptr : member(*object, name);
    if (value == nullptr) return;
    if (!value->is_string()) Body::fail(field, fmt::format("{}.{} is no text", field, name));
    conversation.variables[variable] = *value;
  };
  variable("reasoning", "effort", "reasoning_effort");
  variable("text", "verbosity", "verbosity");
  return conversation;
}

}  // namespace braid::server
