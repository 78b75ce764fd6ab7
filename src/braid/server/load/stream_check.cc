#include "braid/server/load/stream_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid::server {
namespace {

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

int64_t count_of(const Json& usage, const char* name) {
  const Json* value = member(usage, name);
  return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : -1;
}

}  // namespace

void EventReader::push(std::string_view bytes, const std::function<void(std::string_view)>& event) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    if (line_.empty()) {
      if (has_data_) event(data_);
      data_.clear();
      has_data_ = false;
    } else if (line_.starts_with("data:")) {
      if (has_data_) data_ += '\n';
      data_ += std::string_view(line_).substr(line_.starts_with("data: ") ? 6 : 5);
      has_data_ = true;
    }  // comments and fields of other names say nothing here
    line_.clear();
  }
}

void StreamCheck::event(std::string_view data, double time) {
  if (facts_.done) return fault("an event behind [DONE]");
  if (data == "[DONE]") {
    facts_.done = true;
    return;
  }
  const Json object = Json::parse(data, nullptr, false);
  if (object.is_discarded() || !object.is_object()) return fault("an event that is no JSON object");
  if (const Json* error = member(object, "error")) {
    const Json* message = member(*error, "message");
    facts_.error =
        message != nullptr && message->is_string() ? message->get<std::string>() : error->dump();
    return;
  }
  chunk(object, time);
}

void StreamCheck::chunk(const Json& object, double time) {
  const std::string_view want = chat_ ? "chat.completion.chunk" : "text_completion";
  const Json* name = member(object, "object");
  if (name == nullptr || *name != want) fault(fmt::format("a chunk whose object is not {}", want));
  const Json* id = member(object, "id");
  if (id == nullptr || !id->is_string()) {
    fault("a chunk without an id");
  } else {
    if (id_.empty()) id_ = id->get<std::string>();
    if (*id != id_) fault("chunks of different ids");
  }
  if (member(object, "created") == nullptr) fault("a chunk without created");
  if (const Json* usage = member(object, "usage")) {
    facts_.prompt_tokens = count_of(*usage, "prompt_tokens");
    facts_.answer_tokens = count_of(*usage, "completion_tokens");
    if (facts_.prompt_tokens < 0 || facts_.answer_tokens < 0)
      fault("a usage without its token counts");
  }
  const Json* choices = member(object, "choices");
  if (choices == nullptr || !choices->is_array()) return fault("a chunk without a list of choices");
  if (usage_last_) fault("a chunk behind the usage");
  if (choices->empty()) {
    if (member(object, "usage") == nullptr) fault("a chunk with neither choices nor usage");
    if (facts_.finish_reason.empty()) fault("the usage before the finish_reason");
    usage_last_ = true;
  }
  for (const Json& one : *choices) choice(one, time);
}

void StreamCheck::choice(const Json& choice, double time) {
  if (!choice.is_object() || !choice.contains("index") || choice["index"] != 0)
    return fault("a choice of another index than 0");
  bool piece = false;
  const auto text_of = [&](const Json& object, const char* name) {
    const Json* text = member(object, name);
    if (text == nullptr) return;
    if (!text->is_string()) return fault(fmt::format("{} is no text", name));
    facts_.text += text->get<std::string>();
    piece |= !text->get<std::string>().empty();
  };
  if (chat_) {
    const Json* delta = member(choice, "delta");
    if (delta == nullptr) {
      fault("a choice without a delta");
    } else {
      for (const char* name : {"content", "reasoning_content", "reasoning"}) text_of(*delta, name);
      piece |= member(*delta, "tool_calls") != nullptr;
      const Json* role = member(*delta, "role");
      if (role != nullptr && *role != "assistant") fault("a delta of another role than assistant");
    }
  } else {
    if (member(choice, "text") == nullptr) fault("a choice without a text");
    text_of(choice, "text");
  }
  if (piece && !facts_.finish_reason.empty()) fault("text behind the finish_reason");
  if (piece) facts_.times.push_back(time);
  const Json* reason = member(choice, "finish_reason");
  if (reason == nullptr) return;
  static constexpr std::string_view kReasons[] = {"stop", "length", "tool_calls", "content_filter",
                                                  "function_call"};
  if (!reason->is_string() ||
      std::ranges::find(kReasons, reason->get<std::string>()) == std::end(kReasons)) {
    return fault(fmt::format("the finish_reason {}", reason->dump()));
  }
  if (!facts_.finish_reason.empty()) fault("a second finish_reason");
  facts_.finish_reason = reason->get<std::string>();
}

void StreamCheck::end() {
  if (!facts_.error.empty()) return;
  if (facts_.finish_reason.empty()) fault("no finish_reason");
  if (!facts_.done) fault("no [DONE] at the end");
}

}  // namespace braid::server
