// Every way to cut an answer gives the same reasoning, content and calls; arguments are JSON
// objects.
#include <nlohmann/json.hpp>

#include "braid/base/error.h"
#include "braid/text/answer_parser.h"
#include "fuzz/driver/driver.h"

namespace {

using namespace braid;

void add(AnswerParts& all, AnswerParts parts) {
  all.reasoning += parts.reasoning;
  all.content += parts.content;
  std::ranges::move(parts.calls, std::back_inserter(all.calls));
}

}  // namespace

// The first bytes choose the format and where to cut.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 4, size - 4);
  const auto parser = [&] {
    const ReasoningMarks marks = data[0] % 3 == 0   ? ReasoningMarks{}
                                 : data[0] % 3 == 1 ? ReasoningMarks{"<think>", "</think>"}
                                                    : ReasoningMarks{"<think>", "</think>", true};
    return AnswerParser(marks,
                        CallParser(static_cast<CallFormat>(data[1] % 5), {"add"}, data[1] > 200));
  };
  AnswerParser whole = parser(), cut = parser();
  AnswerParts want, got;
  add(want, whole.push(text));
  add(want, whole.finish());
  const size_t step = 1 + data[2] % 16;
  for (size_t at = 0; at < text.size();) {
    const size_t n = 1 + (at * 7 + data[3]) % step;
    add(got, cut.push(text.substr(at, n)));
    at += n;
  }
  add(got, cut.finish());
  BRAID_CHECK(
      got.reasoning == want.reasoning && got.content == want.content && got.calls == want.calls,
      "{} bytes give other parts when cut", text.size());
  for (const ToolCall& call : want.calls) {
    BRAID_CHECK(nlohmann::json::parse(call.arguments).is_object(), "arguments {}", call.arguments);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string call = R"({"name": "add", "arguments": {"a": "}\"é"}})";
  return {std::string("\1\1\3\0", 4) + "<think>a</think>\n<tool_call>" + call + "</tool_call> b",
          std::string("\0\2\5\1", 4) + call + "; " + call,
          std::string("\0\3\1\0", 4) + "x [TOOL_CALLS][" + call + "]",
          std::string("\2\3\2\2", 4) + "a</think>[TOOL_CALLS]add[CALL_ID]1[ARGS]{\"a\": 1}",
          std::string("\0\4\7\3", 4) + "[" + call + "," + call + "]",
          std::string("\0\2\7\3", 4) + "<|python_tag|>" + call};
}
