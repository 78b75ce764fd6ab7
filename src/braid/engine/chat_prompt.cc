#include "braid/engine/chat_prompt.h"

#include <algorithm>
#include <functional>

#include "braid/io/tokenizer_normalize.h"
#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

using Json = nlohmann::ordered_json;

std::string source_of(const LoadedModel& loaded, bool with_tools) {
  auto source = chat_template_source(loaded.text_file(), with_tools);
  if (!source) {
    fail(ErrorCode::kUnsupported, "{} has no chat template: run it without --chat",
         loaded.model.source().path());
  }
  return *std::move(source);
}

// A Unicode noncharacter that occurs nowhere in the conversation.
std::string free_mark(const ChatMessages& conversation) {
  std::string text;
  for (const Json* part : {&conversation.messages, &conversation.tools, &conversation.variables}) {
    text += part->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  for (char32_t code = 0xFDD0; code <= 0xFDEF; ++code) {
    std::string mark;
    append_utf8(code, mark);
    if (text.find(mark) == std::string::npos) return mark;
  }
  fail(ErrorCode::kInvalidArgument, "the messages use all 32 noncharacters U+FDD0 to U+FDEF");
}

// Those ids that are special tokens, but the unknown token: any text may contain it.
std::vector<int32_t> specials(const Tokenizer& tokenizer, std::vector<int32_t> ids) {
  std::erase_if(
      ids, [&](int32_t id) { return !tokenizer.is_special(id) || id == tokenizer.special().unk; });
  return ids;
}

using Change = std::function<std::string(const std::string& text)>;

// `json` with every text and every key of an object changed.
Json changed(const Json& json, const Change& change) {
  if (json.is_string()) return change(json.get<std::string>());
  if (json.is_array()) {
    Json list = Json::array();
    for (const Json& one : json) list.push_back(changed(one, change));
    return list;
  }
  if (!json.is_object()) return json;
  Json object = Json::object();
  for (const auto& [key, value] : json.items()) object[change(key)] = changed(value, change);
  return object;
}

// Names and types, which templates compare and look up; these spell no special token.
bool is_word(const std::string& text) {
  return text.size() <= 64 && std::ranges::all_of(text, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' ||
                  c == '.' || c == '$';
         });
}

Json with_parts(Json messages) {
  for (Json& message : messages) {
    if (message.is_object() && message.contains("content") && message["content"].is_string()) {
      message["content"] =
          Json::array({{{"type", "text"}, {"text", message["content"].get<std::string>()}}});
    }
  }
  return messages;
}

}  // namespace

ChatPrompt::ChatPrompt(const LoadedModel& loaded)
    : tokenizer_(loaded.tokenizer),
      template_(source_of(loaded, false), template_tokens(loaded.text_file(), loaded.tokenizer)),
      source_(source_of(loaded, true)) {
  if (source_ != source_of(loaded, false)) {
    tool_template_.emplace(source_, template_tokens(loaded.text_file(), loaded.tokenizer));
  }
  probe();
}

ChatPrompt::ChatPrompt(const Tokenizer& tokenizer, ChatTemplate chat_template)
    : tokenizer_(tokenizer), template_(std::move(chat_template)) {
  probe();
}

std::string ChatPrompt::render(const ChatInput& input) const {
  const ChatTemplate& chosen = input.tools.empty() || !tool_template_ ? template_ : *tool_template_;
  if (!wants_parts_) return chosen.render(input);
  ChatInput parts = input;
  parts.messages = with_parts(std::move(parts.messages));
  return chosen.render(parts);
}

void ChatPrompt::probe() {
  constexpr const char* kText = "probetext";
  constexpr const char* kTool = "probetool";
  const Json user = Json::array({{{"role", "user"}, {"content", kText}}});
  const Json tools =
      Json::array({{{"type", "function"},
                    {"function",
                     {{"name", kTool},
                      {"description", "x"},
                      {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}}});
  const auto shows = [&](const ChatInput& input, const char* text) {
    try {
      return render(input).find(text) != std::string::npos;
    } catch (const Error&) {
      return false;  // a template that refuses the probe
    }
  };
  if (!shows({.messages = user}, kText)) {
    wants_parts_ = true;
    wants_parts_ = shows({.messages = user}, kText);
  }
  knows_tools_ = shows({.messages = user, .tools = tools}, kTool);
}

std::vector<int32_t> ChatPrompt::encode_conversation(const ChatMessages& conversation) const {
  const std::string mark = free_mark(conversation);
  // `content` changes contents; `other` changes all other text from the client.
  const auto encoded = [&](const Change& content, const Change& other) {
    ChatInput input{.messages = Json::array()};
    for (const Json& message : conversation.messages) {
      Json one = Json::object();
      for (const auto& [key, value] : message.items()) {
        const bool text = key == "content" || key == "reasoning_content";
        one[key] = key == "role" ? value : changed(value, text ? content : other);
      }
      input.messages.push_back(std::move(one));
    }
    input.tools = changed(conversation.tools, other);
    input.variables = changed(conversation.variables, other);
    return tokenizer_.encode(render(input),
                             {.add_special = false, .parse_special = true, .mark = mark});
  };
  const auto defuse = [&](const std::string& text) { return tokenizer_.defuse(text, mark); };
  auto ids = encoded(defuse, defuse);
  // A template may change its input until the text spells a special token. With a mark on both
  // sides of every character only the template's own tokens are special. The mark in front stands
  // behind a character that no token has, not behind the template's text.
  const auto own_text = [&](const std::string& text) {
    if (text.empty()) return text;
    return "\uFFFE" + mark + mark_own(text, std::string(text.size(), '\1'), mark);
  };
  const auto own = encoded(
      own_text, [&](const std::string& text) { return is_word(text) ? text : own_text(text); });
  if (specials(tokenizer_, ids) != specials(tokenizer_, own)) {
    fail(ErrorCode::kInvalidArgument,
         "the chat template makes special tokens out of the text of a message");
  }
  return ids;
}

std::vector<int32_t> ChatPrompt::encode(const std::vector<ChatMessage>& messages) const {
  ChatMessages conversation{.messages = Json::array()};
  for (const ChatMessage& m : messages) {
    conversation.messages.push_back({{"role", m.role}, {"content", m.content}});
  }
  return encode_conversation(conversation);
}

}  // namespace braid
