#pragma once

#include <string>
#include <vector>

#include "braid/engine/chat_prompt.h"
#include "braid/grammar/call_tag.h"
#include "braid/server/schema/fields.h"
#include "braid/server/service.h"
#include "braid/text/answer_parser.h"

namespace braid::server {

// The messages of a body in chat templates' form: contents as a text each, "developer" as "system",
// arguments of calls as objects. Fails with ApiError 400, naming the message.
Json messages_of(const Json& messages);

// How a body's tools are used.
struct ToolUse {
  Json tools;                               // for the template; null: none are offered
  std::vector<std::string> names;           // of the functions
  std::vector<CallableFunction> functions;  // that may be called: a named one, or all
  bool must_call = false;                   // tool_choice is required or names a function
  bool one_call = false;                    // parallel_tool_calls is false, or one is named
};

// Fails with ApiError 400, naming the tool, and where the template knows no tools.
ToolUse tool_use(const Service& service, const Body& body);

struct ChatRequest {
  std::vector<int32_t> prompt;  // ids
  ReasoningMarks marks;         // of the answer's reasoning
  CallFormat format = CallFormat::none;
  ToolUse use;
  std::optional<int32_t> mark_token;  // the mark of calls, where it is a special token
  bool show_special = false;          // the marks of calls or reasoning are special tokens

  AnswerParser parser() const { return {marks, CallParser(format, use.names, use.one_call)}; }
  bool parsed() const { return !marks.open.empty() || format != CallFormat::none; }
};

// A body's request to the model. Fails with ApiError 400 if the model has no chat template.
ChatRequest chat_request(const Service& service, const Body& body);

}  // namespace braid::server
