// What binds calls of functions, by format.
#include "braid/grammar/call_tag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

// The fixed texts of a tag, in order, with S for a schema.
std::string outline(const Json& format) {
  const std::string type = format["type"];
  if (type == "const_string") return format["value"];
  if (type == "json_schema") return "S";
  if (type == "token") return "#" + format["token"].dump();
  if (type == "star") return "(" + outline(format["content"]) + ")*";
  std::string out;
  for (const Json& element : format["elements"])
    out += (type == "or" && !out.empty() ? "|" : "") + outline(element);
  return type == "or" ? "(" + out + ")" : out;
}

std::string forced(const CallRules& rules, int functions = 1) {
  std::vector<CallableFunction> all;
  for (int i = 0; i < functions; ++i)
    all.push_back({.name = std::string(1, static_cast<char>('f' + i))});
  return outline(Json::parse(calls_tag(all, rules))["format"]);
}

TEST(CallTag, WritesEachFormatAsItsParserReadsIt) {
  EXPECT_EQ(forced({.format = CallFormat::hermes, .must = true, .one = true}),
            "<tool_call>\n{\"name\": \"f\", \"arguments\": S}\n</tool_call>");
  EXPECT_EQ(forced({.format = CallFormat::hermes, .must = true, .one = true, .mark_token = 7}, 2),
            "#7\n({\"name\": \"f\", \"arguments\": S}|{\"name\": \"g\", \"arguments\": "
            "S})\n</tool_call>");
  EXPECT_EQ(forced({.format = CallFormat::mistral, .must = true, .mark_token = 5}),
            "#5[{\"name\": \"f\", \"arguments\": S}(, {\"name\": \"f\", \"arguments\": S})*]");
  EXPECT_EQ(forced({.format = CallFormat::llama3, .must = true}),
            "{\"name\": \"f\", \"parameters\": S}(; {\"name\": \"f\", \"parameters\": S})*");
  EXPECT_EQ(forced({.format = CallFormat::bare, .must = true, .one = true}),
            "{\"name\": \"f\", \"arguments\": S}");
  // The parsers find the calls in texts of these outlines.
  for (const CallFormat format :
       {CallFormat::hermes, CallFormat::mistral, CallFormat::llama3, CallFormat::bare}) {
    std::string text = forced({.format = format, .must = true, .one = true});
    text.replace(text.rfind('S'), 1, "{}");
    CallParser parser(format, {"f"});
    CallDelta delta = parser.push(text);
    const CallDelta last = parser.finish();
    delta.calls.insert(delta.calls.end(), last.calls.begin(), last.calls.end());
    ASSERT_EQ(delta.calls.size(), 1u) << to_string(format);
    EXPECT_EQ(delta.calls[0].name, "f");
    EXPECT_EQ(delta.content + last.content, "");
  }
}

TEST(CallTag, StrictFunctionsKeepEachWord) {
  const Json unique = {{"type", "array"}, {"uniqueItems", true}};
  CallableFunction function{.name = "f", .parameters = unique, .place = "tools[3].function"};
  const CallRules must{.format = CallFormat::hermes, .must = true};
  EXPECT_THAT(calls_tag({function}, must), HasSubstr(R"("json_schema":{"type":"object")"));
  EXPECT_EQ(calls_tag({function}, {.format = CallFormat::hermes}), "");
  function.strict = true;
  try {
    calls_tag({function}, must);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("tools[3].function.parameters: the schema at #: uniqueItems"));
  }
  function.parameters = nullptr;
  EXPECT_THAT(calls_tag({function}, {.format = CallFormat::hermes}), HasSubstr("triggered_tags"));
  EXPECT_THROW(calls_tag({function}, {.format = CallFormat::llama3}), Error);
}

}  // namespace
}  // namespace braid
