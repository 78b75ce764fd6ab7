#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/text/json_end.h"

namespace braid {

// A model's spelling of function calls.
enum class CallFormat {
  none,
  hermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen
  llama3,   // {"name": ..., "parameters": {...}}, also behind <|python_tag|>, several with ;
  mistral,  // [TOOL_CALLS][{"name": ..., "arguments": {...}}] or [TOOL_CALLS]name[ARGS]{...}
  bare,     // the answer is such an object, or a list of objects
};

// The format that a chat template writes and reads.
CallFormat call_format(std::string_view template_source);
std::string_view to_string(CallFormat format);

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object

  bool operator==(const ToolCall&) const = default;
};

struct CallDelta {
  std::string content;
  std::vector<ToolCall> calls;
};

// Finds the calls in an answer that comes piece by piece. A call is given out once it is whole, so
// that a broken one can become content. White space around calls belongs to nothing. Every way to
// cut an answer into pieces gives the same content and calls.
class CallParser {
 public:
  // `names`: existing functions. Without a mark before a call, an object that calls an unknown
  // function is content. `one`: text after the first call is dropped.
  CallParser(CallFormat format, std::vector<std::string> names, bool one = false);

  // The mark before a call; empty: the format has no such mark.
  static std::string mark_of(CallFormat format);

  CallDelta push(std::string_view piece);
  CallDelta finish();
  bool done() const { return one_ && calls_ > 0; }

 private:
  enum class State {
    begin,    // of the answer: a call without a mark may come
    text,     // content, in which a mark may come
    call,     // behind a mark
    between,  // behind a call: another may come without a mark
    behind,   // behind a call
  };
  struct Scan {
    enum Result { more, broken, whole } result = more;
    std::vector<ToolCall> calls;
    size_t end = 0;  // of the calls in held_
  };

  CallDelta advance(bool ended);
  void take_text(bool ended, CallDelta& delta);
  void take_begin(bool ended);
  void take_call(bool ended, CallDelta& delta);
  Scan scan(bool ended);
  Scan scan_json(size_t begin, const std::string& name, bool ended);
  void expect_call(size_t before, bool marked);
  void give_text(size_t size, CallDelta& delta);

  const CallFormat format_;
  const std::vector<std::string> names_;
  const bool one_;
  std::string mark_;  // before calls; empty: none
  State state_;
  std::string held_;
  // In State::call: length of held_ before the call, and whether this text is the mark.
  size_t before_ = 0;
  bool marked_ = false;
  JsonEnd json_;
  int calls_ = 0;  // so far
};

}  // namespace braid
