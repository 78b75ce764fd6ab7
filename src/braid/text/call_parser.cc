#include "braid/text/call_parser.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "braid/text/mark_search.h"

namespace braid {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHermesEnd = "</tool_call>";
constexpr std::string_view kArguments = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";
constexpr size_t kMostName = 200;  // characters between Mistral's marks

bool is_name(std::string_view text, std::string_view also = "") {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
           also.find(c) != std::string_view::npos;
  });
}

std::optional<std::string> arguments_of(const Json& value) {
  if (value.is_null()) return "{}";
  if (value.is_object()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!value.is_string()) return {};
  // Some models write the object as a text.
  const Json inner = Json::parse(value.get<std::string>(), nullptr, false);
  return inner.is_object() ? std::optional(value.get<std::string>()) : std::nullopt;
}

std::optional<ToolCall> call_of(const Json& json) {
  if (!json.is_object()) return {};
  if (const auto inner = json.find("function"); inner != json.end() && inner->is_object())
    return call_of(*inner);
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string() || !is_name(name->get<std::string>())) return {};
  auto arguments = json.find("arguments");
  if (arguments == json.end()) arguments = json.find("parameters");
  const auto text =
      arguments == json.end() ? std::optional<std::string>("{}") : arguments_of(*arguments);
  if (!text) return {};
  return ToolCall{name->get<std::string>(), *text};
}

}  // namespace

CallFormat call_format(std::string_view template_source) {
  const auto has = [&](std::string_view mark) {
    return template_source.find(mark) != std::string_view::npos;
  };
  if (has("<tool_call>")) return CallFormat::hermes;
  if (has("[TOOL_CALLS]")) return CallFormat::mistral;
  if (has("<|python_tag|>") || has("\"parameters\": ")) return CallFormat::llama3;
  return CallFormat::bare;
}

std::string_view to_string(CallFormat format) {
  switch (format) {
    case CallFormat::none:
      return "none";
    case CallFormat::hermes:
      return "hermes";
    case CallFormat::llama3:
      return "llama3";
    case CallFormat::mistral:
      return "mistral";
    case CallFormat::bare:
      return "bare";
  }
  return "none";
}

CallParser::CallParser(CallFormat format, std::vector<std::string> names, bool one)
    : format_(format),
      names_(std::move(names)),
      one_(one),
      mark_(mark_of(format)),
      state_(format == CallFormat::llama3 || format == CallFormat::bare ? State::begin
                                                                        : State::text) {}

std::string CallParser::mark_of(CallFormat format) {
  switch (format) {
    case CallFormat::hermes:
      return "<tool_call>";
    case CallFormat::llama3:
      return "<|python_tag|>";
    case CallFormat::mistral:
      return "[TOOL_CALLS]";
    default:
      return "";
  }
}

CallDelta CallParser::push(std::string_view piece) {
  held_ += piece;
  return advance(false);
}

CallDelta CallParser::finish() {
  return advance(true);
}

CallDelta CallParser::advance(bool ended) {
  CallDelta delta;
  while (!done()) {
    const size_t size = held_.size();
    const State state = state_;
    switch (state_) {
      case State::begin:
      case State::between:
        take_begin(ended);
        break;
      case State::behind:
        held_.erase(0, skip_blanks(held_));
        if (!held_.empty()) state_ = State::text;
        break;
      case State::text:
        take_text(ended, delta);
        break;
      case State::call:
        take_call(ended, delta);
        break;
    }
    if (held_.size() == size && state_ == state) break;
  }
  if (done()) held_.clear();
  return delta;
}

// Whether a call without a mark begins here.
void CallParser::take_begin(bool ended) {
  size_t at = skip_blanks(held_);
  if (state_ == State::between && at < held_.size() && held_[at] == ';')
    at = skip_blanks(held_, at + 1);
  if (at == held_.size() && !ended) return;
  const bool list = format_ == CallFormat::bare && state_ == State::begin;
  if (at < held_.size() && (held_[at] == '{' || (list && held_[at] == '['))) {
    expect_call(at, false);
  } else {
    state_ = state_ == State::begin ? State::text : State::behind;
  }
}

void CallParser::expect_call(size_t before, bool marked) {
  state_ = State::call;
  before_ = before;
  marked_ = marked;
  json_ = JsonEnd();
}

void CallParser::give_text(size_t size, CallDelta& delta) {
  delta.content += std::string_view(held_).substr(0, size);
  held_.erase(0, size);
}

void CallParser::take_text(bool ended, CallDelta& delta) {
  if (mark_.empty()) return give_text(held_.size(), delta);
  const size_t mark = held_.find(mark_);
  if (mark != std::string::npos) {
    const size_t text = trim_blanks(held_, mark);
    give_text(text, delta);
    return expect_call(mark - text + mark_.size(), true);
  }
  // White space may stand before a mark.
  give_text(ended ? held_.size() : trim_blanks(held_, held_.size() - begun_mark(held_, mark_)),
            delta);
}

void CallParser::take_call(bool ended, CallDelta& delta) {
  Scan found = scan(ended);
  if (found.result == Scan::more) return;
  if (found.result == Scan::broken) {
    // Text before the mark is content; a mark may follow.
    give_text(before_, delta);
    state_ = State::text;
    return;
  }
  if (one_) found.calls.resize(1);
  calls_ += static_cast<int>(found.calls.size());
  std::ranges::move(found.calls, std::back_inserter(delta.calls));
  held_.erase(0, found.end);
  state_ =
      format_ == CallFormat::llama3 || format_ == CallFormat::bare ? State::between : State::behind;
}

CallParser::Scan CallParser::scan(bool ended) {
  const Scan wait{ended ? Scan::broken : Scan::more, {}, 0};
  const size_t begin = skip_blanks(held_, before_);
  if (begin == held_.size()) return wait;
  const bool list = format_ == CallFormat::mistral || (format_ == CallFormat::bare && !marked_);
  if (held_[begin] == '{' && format_ != CallFormat::mistral) return scan_json(begin, "", ended);
  if (held_[begin] == '[' && list) return scan_json(begin, "", ended);
  if (format_ != CallFormat::mistral) return {Scan::broken, {}, 0};
  // name[ARGS]{...}, or name[CALL_ID]id[ARGS]{...}
  const size_t mark = held_.find(kArguments, begin);
  const std::string_view text =
      std::string_view(held_).substr(begin, mark == std::string::npos ? mark : mark - begin);
  const size_t begun = mark == std::string::npos ? begun_mark(text, kArguments) : 0;
  const std::string_view head = text.substr(0, text.size() - begun);
  if (head.size() > kMostName || (!head.empty() && !is_name(head, "[]")))
    return {Scan::broken, {}, 0};
  if (mark == std::string::npos) return wait;
  const std::string name(head.substr(0, head.find(kCallId)));
  if (!is_name(name)) return {Scan::broken, {}, 0};
  const size_t object = skip_blanks(held_, mark + kArguments.size());
  if (object == held_.size()) return wait;
  if (held_[object] != '{') return {Scan::broken, {}, 0};
  return scan_json(object, name, ended);
}

// `name`: the function for these arguments; empty: the object names its function.
CallParser::Scan CallParser::scan_json(size_t begin, const std::string& name, bool ended) {
  const Scan broken{Scan::broken, {}, 0};
  const JsonEnd::Found found = json_.find(std::string_view(held_).substr(begin));
  if (found == JsonEnd::Found::more) return {ended ? Scan::broken : Scan::more, {}, 0};
  if (found == JsonEnd::Found::broken) return broken;
  Scan scan{Scan::whole, {}, begin + json_.end()};
  const Json json = Json::parse(std::string_view(held_).substr(begin, json_.end()), nullptr, false);
  if (json.is_discarded()) return broken;
  if (!name.empty()) {
    const auto arguments = arguments_of(json);
    if (!arguments) return broken;
    scan.calls.push_back({name, *arguments});
  } else {
    for (const Json& one : json.is_array() ? json : Json::array({json})) {
      const auto call = call_of(one);
      const bool known = call && (marked_ || std::ranges::find(names_, call->name) != names_.end());
      if (!known) return broken;
      scan.calls.push_back(*call);
    }
    if (scan.calls.empty()) return broken;
  }
  if (format_ != CallFormat::hermes) return scan;
  const size_t behind = skip_blanks(held_, scan.end);
  const std::string_view rest = std::string_view(held_).substr(behind);
  if (rest.starts_with(kHermesEnd)) {
    scan.end = behind + kHermesEnd.size();
  } else if (kHermesEnd.starts_with(rest)) {
    if (!ended) return {Scan::more, {}, 0};
    scan.end = held_.size();  // an answer that ends within the closing mark
  }
  return scan;
}

}  // namespace braid
