// Answers divided into reasoning, content and calls, cut in every way.
#include "braid/text/answer_parser.h"

#include <gmock/gmock.h>

#include <random>

namespace braid {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Format {
  ReasoningMarks marks{};
  CallFormat format = CallFormat::none;
  bool one = false;

  AnswerParser parser() const { return {marks, CallParser(format, {"add", "get_time"}, one)}; }
};

// `text` in pieces that end at `cuts`.
AnswerParts parse(const Format& format, std::string_view text, const std::vector<size_t>& cuts) {
  AnswerParser parser = format.parser();
  AnswerParts all;
  const auto add = [&](AnswerParts parts) {
    all.reasoning += parts.reasoning;
    all.content += parts.content;
    std::ranges::move(parts.calls, std::back_inserter(all.calls));
  };
  size_t begin = 0;
  for (const size_t cut : cuts) {
    add(parser.push(text.substr(begin, cut - begin)));
    begin = cut;
  }
  add(parser.push(text.substr(begin)));
  add(parser.finish());
  return all;
}

void expect_same(const Format& format, std::string_view text, const std::vector<size_t>& cuts,
                 const AnswerParts& want) {
  const AnswerParts got = parse(format, text, cuts);
  ASSERT_EQ(got.reasoning, want.reasoning) << text << " " << testing::PrintToString(cuts);
  ASSERT_EQ(got.content, want.content) << text << " " << testing::PrintToString(cuts);
  ASSERT_EQ(got.calls, want.calls) << text << " " << testing::PrintToString(cuts);
}

// The whole text's parts, which every way to cut it once or twice gives, and byte by byte.
AnswerParts parts_of(const Format& format, std::string_view text) {
  const AnswerParts want = parse(format, text, {});
  std::vector<size_t> all;
  for (size_t a = 0; a <= text.size(); ++a) {
    all.push_back(a);
    for (size_t b = a; b <= text.size(); ++b) expect_same(format, text, {a, b}, want);
  }
  expect_same(format, text, all, want);
  return want;
}

void expect_parts(const Format& format, std::string_view text, const std::string& content,
                  const std::vector<ToolCall>& calls) {
  const AnswerParts parts = parts_of(format, text);
  EXPECT_EQ(parts.content, content) << text;
  EXPECT_EQ(parts.calls, calls) << text;
}

const Format kHermes{.format = CallFormat::hermes}, kLlama{.format = CallFormat::llama3},
    kMistral{.format = CallFormat::mistral}, kBare{.format = CallFormat::bare};

TEST(AnswerParser, WithoutMarksAllIsContent) {
  const std::string text = "  <think>a</think><tool_call>{\"name\": \"add\"}</tool_call> ";
  EXPECT_EQ(parts_of({}, text).content, text);
}

TEST(AnswerParser, HermesCalls) {
  const ToolCall add{"add", R"({"a":1})"}, time{"get_time", "{}"};
  expect_parts(kHermes, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>",
               "", {add});
  expect_parts(
      kHermes,
      "Let me see.\n<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>\n"
      "<tool_call>{\"name\": \"get_time\"}</tool_call>\n",
      "Let me see.", {add, time});
  // Braces, quotes, marks and characters of several bytes within texts.
  expect_parts(
      kHermes,
      R"(<tool_call>{"name": "add", "arguments": {"s": "}\"{</tool_call>é\u00e9"}}</tool_call>)",
      "", {{"add", R"({"s":"}\"{</tool_call>éé"})"}});
  expect_parts(kHermes, R"(<tool_call>{"name": "add", "arguments": "{\"a\": 1}"}</tool_call>)", "",
               {{"add", R"({"a": 1})"}});
  // An answer that ends before its closing mark, or within it.
  expect_parts(kHermes, R"(<tool_call>{"name": "get_time", "arguments": null})", "", {time});
  expect_parts(kHermes, R"(<tool_call>{"name": "get_time"}</tool)", "", {time});
  expect_parts(kHermes, R"(<tool_call>{"name": "get_time"} and more)", "and more", {time});
}

TEST(AnswerParser, ABrokenCallIsContent) {
  for (const char* text :
       {"<tool_call>{\"name\": \"add\", \"argu", "<tool_call>none</tool_call>", "<tool_call>",
        "<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{name: add}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": 3}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": \"x\"}</tool_call>", "a <tool_", "a <",
        "<tool_call>{\"name\": \"add\", \"arguments\": {\"s\": \"\\ud800\"}}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": {\"n\": 1e999}}</tool_call>", " x \n",
        "<tool_call>{\"name\": \"a b\"}</tool_call>"}) {
    expect_parts(kHermes, text, text, {});
  }
  const std::string deep = "<tool_call>" + std::string(70, '[');
  expect_parts(kHermes, "<tool_call>{" + deep, "<tool_call>{" + deep, {});
  // One that is whole may follow.
  expect_parts(kHermes, "<tool_call>x <tool_call>{\"name\": \"get_time\"}</tool_call>",
               "<tool_call>x", {{"get_time", "{}"}});
}

TEST(AnswerParser, LlamaCalls) {
  const ToolCall add{"add", R"({"a":1})"}, time{"get_time", "{}"};
  const std::string one = R"({"name": "add", "parameters": {"a": 1}})";
  expect_parts(kLlama, one, "", {add});
  expect_parts(kLlama, "<|python_tag|>" + one, "", {add});
  expect_parts(kLlama, "  " + one + "; {\"name\": \"get_time\", \"parameters\": {}}", "",
               {add, time});
  expect_parts(kLlama, one + " done; or not", "done; or not", {add});
  expect_parts(kLlama, "I call <|python_tag|>" + one, "I call", {add});
  // JSON that calls nothing is an answer.
  for (const char* text : {R"({"name": "Anna", "parameters": {}})", R"({"a": 1})", "{ is a brace",
                           "<|python_tag|>print(1)", "x {\"name\": \"add\", \"parameters\": {}}"}) {
    expect_parts(kLlama, text, text, {});
  }
}

TEST(AnswerParser, MistralCalls) {
  const ToolCall add{"add", R"({"a":1})"}, time{"get_time", "{}"};
  expect_parts(kMistral,
               R"([TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "get_time"}])", "",
               {add, time});
  expect_parts(kMistral, R"([TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]get_time[ARGS]{})", "",
               {add, time});
  expect_parts(kMistral, R"(ok [TOOL_CALLS]add[CALL_ID]x1[ARGS] {"a": 1})", "ok", {add});
  for (const char* text : {"[TOOL_CALLS]", "[TOOL_CALLS][]", "[TOOL_CALLS][{\"name\": \"add\"}, 3]",
                           "[TOOL_CALLS]add{}", "[TOOL_CALLS]two words[ARGS]{}",
                           "[TOOL_CALLS]add[ARGS]x", "[TOOL_CALLS][ARGS]{}", "[TOOL_CA"}) {
    expect_parts(kMistral, text, text, {});
  }
}

TEST(AnswerParser, BareCalls) {
  const ToolCall add{"add", R"({"a":1})"}, time{"get_time", "{}"};
  expect_parts(kBare, R"({"name": "add", "arguments": {"a": 1}})", "", {add});
  expect_parts(kBare, R"([{"name": "add", "arguments": {"a": 1}}, {"name": "get_time"}])", "",
               {add, time});
  expect_parts(kBare, "{\"name\": \"get_time\"}\n{\"name\": \"get_time\"}", "", {time, time});
  expect_parts(kBare, R"({"type": "function", "function": {"name": "get_time"}})", "", {time});
  expect_parts(kBare, "[1, 2]", "[1, 2]", {});
}

TEST(AnswerParser, AfterTheOneCallThatIsAllowedNothingFollows) {
  Format one = kHermes;
  one.one = true;
  const std::string call = "<tool_call>{\"name\": \"get_time\"}</tool_call>";
  expect_parts(one, "a" + call + call + "b", "a", {{"get_time", "{}"}});
  one.format = CallFormat::mistral;
  expect_parts(one, R"([TOOL_CALLS][{"name": "add"}, {"name": "get_time"}])", "", {{"add", "{}"}});
}

TEST(AnswerParser, Reasoning) {
  const Format think{.marks = {"<think>", "</think>"}},
      opened{.marks = {"<think>", "</think>", true}};
  const auto check = [](const Format& f, std::string_view text, const char* reasoning,
                        const char* content) {
    const AnswerParts parts = parts_of(f, text);
    EXPECT_EQ(parts.reasoning, reasoning) << text;
    EXPECT_EQ(parts.content, content) << text;
  };
  check(think, "<think>\na b\n\n</think>\n\nc d", "a b", "c d");
  check(think, " \n<think></think>x", "", "x");
  check(think, "<think>never closed <", "never closed <", "");
  check(think, "x <think>y</think>", "", "x <think>y</think>");
  check(think, " <thin", "", " <thin");
  check(think, "", "", "");
  check(opened, "\na </thin> b\n</think>\nc", "a </thin> b", "c");
  check(opened, "only thought", "only thought", "");
  Format both = think;
  both.format = CallFormat::hermes;
  const AnswerParts parts = parts_of(
      both, "<think>call <tool_call>{}?</think>\n<tool_call>{\"name\": \"get_time\"}</tool_call>");
  EXPECT_EQ(parts.reasoning, "call <tool_call>{}?");
  EXPECT_EQ(parts.content, "");
  EXPECT_THAT(parts.calls, ElementsAre(ToolCall{"get_time", "{}"}));
}

// Texts of parts that the formats are made of, in any order.
TEST(AnswerParser, RandomTextsCutAtRandomGiveTheSameParts) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::vector<std::string> parts = {"<think>",
                                          "</think>",
                                          "<tool_call>",
                                          "</tool_call>",
                                          "[TOOL_CALLS]",
                                          "[ARGS]",
                                          "[CALL_ID]",
                                          "<|python_tag|>",
                                          "{\"name\": \"add\", \"arguments\": {\"a\": [1]}}",
                                          "add",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          "\"",
                                          "\\",
                                          "{\"name\": \"get_time\"}",
                                          ";",
                                          ",",
                                          " ",
                                          "\n",
                                          "é",
                                          "x",
                                          "<",
                                          "</",
                                          "{}"};
  for (int round = 0; round < 3000; ++round) {
    Format format;
    format.format = static_cast<CallFormat>(random() % 5);
    format.one = random() % 4 == 0;
    if (random() % 2 == 0) format.marks = {"<think>", "</think>", random() % 2 == 0};
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) text += parts[random() % parts.size()];
    const AnswerParts want = parse(format, text, {});
    for (int i = 0; i < 6; ++i) {
      std::vector<size_t> cuts(random() % (text.size() + 1));
      for (size_t& cut : cuts) cut = random() % (text.size() + 1);
      std::ranges::sort(cuts);
      expect_same(format, text, cuts, want);
    }
    if (want.calls.empty() && format.marks.open.empty()) {
      EXPECT_EQ(want.content, text) << "nothing is lost";
    }
  }
}

TEST(CallFormat, IsSeenInTheTemplate) {
  EXPECT_EQ(call_format("... <tool_call>\n{{ x }}"), CallFormat::hermes);
  EXPECT_EQ(call_format("[TOOL_CALLS]"), CallFormat::mistral);
  EXPECT_EQ(call_format("'{\"name\": \"' + n + '\", \"parameters\": '"), CallFormat::llama3);
  EXPECT_EQ(call_format("{{ tools | tojson }}"), CallFormat::bare);
  EXPECT_EQ(reasoning_marks("{{ x.split('</think>') }}").open, "<think>");
  EXPECT_EQ(reasoning_marks("{{ x }}").open, "");
}

}  // namespace
}  // namespace braid
