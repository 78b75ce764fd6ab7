#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braid/engine/chat_prompt.h"
#include "braid/grammar/call_tag.h"
#include "braid/server/schema/fields.h"
#include "braid/server/service.h"
#include "braid/text/answer_parser.h"

namespace braid::server {

// A member of an object; null if absent or null.
const Json* member(const Json& object, const char* name);

// A content's text: a text, null, or a list of parts with the given types. Fails with ApiError 400,
// naming the field and the place in it.
std::string content_text(const Json& content, const std::string& field, const std::string& where,
                         std::span<const std::string_view> types);

// The messages of a body in chat templates' form: contents as a text each, "developer" as "system",
// arguments of calls as objects. Fails with ApiError 400, naming the message.
Json messages_of(const Json& messages);

// An earlier call in chat templates' form: arguments given as a text become the object in the text.
Json call_for_template(const Json& name, Json arguments);

// How a body's tools are used.
struct ToolUse {
  Json tools;                               // nested, for the template; null: none are offered
  std::vector<std::string> names;           // the functions' names
  std::vector<CallableFunction> functions;  // callable functions: a named one, or all
  bool must_call = false;                   // tool_choice is required or names a function
  bool one_call = false;                    // parallel_tool_calls is false, or one is named
};

// Where a tool's name stands: in a member `function` (chat completions) or beside `type`
// (responses).
enum class ToolForm { nested, flat };

// By tools, tool_choice and parallel_tool_calls. Fails with ApiError 400, naming the tool, and
// where the template knows no tools.
ToolUse tool_use(const Service& service, const Body& body, ToolForm form);

struct ChatRequest {
  std::vector<int32_t> prompt;  // ids
  ReasoningMarks marks;         // the answer's reasoning marks
  CallFormat format = CallFormat::none;
  ToolUse use;
  std::optional<int32_t> mark_token;  // the mark before calls, if it is a special token
  bool show_special = false;          // the marks of calls or reasoning are special tokens

  AnswerParser parser() const { return {marks, CallParser(format, use.names, use.one_call)}; }
  bool parsed() const { return !marks.open.empty() || format != CallFormat::none; }
};

// Fails with ApiError 400 if the model has no chat template.
void check_template(const Service& service);

// A chat's request to the model, by the body's fields. Fails as check_template(), messages_of() and
// tool_use() do.
ChatRequest chat_request(const Service& service, const Body& body);
// Likewise; the model has a template, and tools come from `use`.
ChatRequest chat_request(const Service& service, ChatMessages conversation, ToolUse use);

}  // namespace braid::server
