// Tools and reasoning over HTTP, with a model whose answers are known.
#include "server/scripted_server.h"

namespace braid::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ToolsTest : public ScriptedTest {};

// A whole answer's first choice. The same as a stream has to say the same.
Json choice_of(Json body) {
  const Reply reply = ScriptedTest::post(body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  Json choice = reply.json()["choices"][0];
  body["stream"] = true;
  std::string content, reasoning, reason;
  std::vector<Json> calls;
  std::set<std::string> ids;
  const Reply stream = ScriptedTest::post(body);
  EXPECT_EQ(stream.events().back(), "[DONE]");
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") continue;
    const Json one = Json::parse(event)["choices"][0];
    const Json& delta = one["delta"];
    if (delta.contains("content")) content += delta["content"].get<std::string>();
    if (delta.contains("reasoning_content"))
      reasoning += delta["reasoning_content"].get<std::string>();
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      const size_t index = call["index"];
      if (call.contains("id")) {
        EXPECT_EQ(index, calls.size());
        EXPECT_EQ(call["type"], "function");
        EXPECT_EQ(call["function"]["arguments"], "");
        EXPECT_TRUE(ids.insert(call["id"]).second);
        calls.push_back(call["function"]);
      } else {
        calls.at(index)["arguments"] = calls.at(index)["arguments"].get<std::string>() +
                                       call["function"]["arguments"].get<std::string>();
      }
    }
    if (!one["finish_reason"].is_null()) reason += one["finish_reason"].get<std::string>();
  }
  const Json& message = choice["message"];
  EXPECT_EQ(content, message["content"].is_null() ? "" : message["content"].get<std::string>());
  EXPECT_EQ(reasoning, message.value("reasoning_content", ""));
  EXPECT_EQ(reason, choice["finish_reason"].get<std::string>());
  const Json whole = message.value("tool_calls", Json::array());
  EXPECT_EQ(calls.size(), whole.size());
  for (size_t i = 0; i < std::min(calls.size(), whole.size()); ++i) {
    EXPECT_EQ(calls[i], whole[i]["function"]);
    EXPECT_THAT(whole[i]["id"].get<std::string>(), testing::StartsWith("call_"));
  }
  return choice;
}

TEST_F(ToolsTest, ACallComesWithItsArgumentsAsAText) {
  const Json choice = choice_of(asking("@call"));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Let me see.");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  const Json& call = choice["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(call["name"], "add");
  EXPECT_EQ(call["arguments"], "{\"a\":1}");
}

TEST_F(ToolsTest, SeveralCallsAndOneAlone) {
  Json body = asking("@two");
  Json choice = choice_of(body);
  EXPECT_TRUE(choice["message"]["content"].is_null());
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 2u);
  EXPECT_EQ(choice["message"]["tool_calls"][1]["function"]["name"], "sub");
  body["parallel_tool_calls"] = false;
  choice = choice_of(body);
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST_F(ToolsTest, ABrokenCallOrOneThatIsCutIsContent) {
  Json choice = choice_of(asking("@broken"));
  EXPECT_EQ(choice["message"]["content"], "<tool_call> {\"name\": \"add\", \"argu ");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  Json body = asking("@call");
  body["max_tokens"] = 4;
  choice = choice_of(body);
  // The JSON is whole with the fourth token, and only its closing mark is missing.
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["finish_reason"], "length");
  body["max_tokens"] = 3;
  choice = choice_of(body);
  EXPECT_EQ(choice["message"]["content"], "Let me see.\n<tool_call>\n{\"name\": \"add\", \"argu");
  EXPECT_EQ(choice["finish_reason"], "length");
}

TEST_F(ToolsTest, WithoutToolsCallsAreText) {
  Json body = asking("@two");
  const char* text =
      " <tool_call>{\"name\": \"add\"}</tool_call> <tool_call>{\"name\": \"sub\"}</tool_call>";
  body["tool_choice"] = "none";
  EXPECT_EQ(choice_of(body)["message"]["content"], text);
  body.erase("tools");
  body.erase("tool_choice");
  EXPECT_EQ(choice_of(body)["message"]["content"], text);
}

TEST_F(ToolsTest, ReasoningIsApart) {
  Json body = asking("@think");
  body["logprobs"] = true;
  const Reply whole = post(body);
  const Json answer = whole.json();
  EXPECT_EQ(answer["choices"][0]["message"]["reasoning_content"], "long thought");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "The answer");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["content"].size(), 6u);
  EXPECT_GT(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
  choice_of(body);
  // The template opens it, and it is never closed.
  body = asking("x");
  body["chat_template_kwargs"] = {{"opened", true}};
  const Json choice = choice_of(body);
  EXPECT_EQ(choice["message"]["reasoning_content"], "inside all of it");
  EXPECT_TRUE(choice["message"]["content"].is_null());
}

TEST_F(ToolsTest, LogProbabilitiesStandBesideTheirText) {
  Json body = asking("@think");
  body["logprobs"] = true;
  body["stream"] = true;
  body["stop"] = "</think>\n\nThe question";  // holds the text of three tokens back
  std::string content, reasoning;
  const auto events = post(body).events();
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const Json one = Json::parse(event)["choices"][0];
    if (one["logprobs"].is_null()) continue;
    for (const Json& token : one["logprobs"]["content"]) {
      std::string& kind = one["delta"].contains("reasoning_content") ? reasoning : content;
      if (one["delta"].value("content", "x") != "") kind += token["token"].get<std::string>();
    }
  }
  EXPECT_EQ(reasoning, "\nlong thought\n");
  EXPECT_EQ(content, "The answer");
}

TEST_F(ToolsTest, AGrammarBindsNothingInsideTheReasoning) {
  if (GrammarLibrary::version().empty()) GTEST_SKIP() << "built without grammars";
  Json body = asking("x");
  body.erase("tools");
  body["chat_template_kwargs"] = {{"opened", true}};
  body["structured_outputs"] = {{"regex", "[0-9]"}};
  body["max_tokens"] = 6;
  const Json choice = choice_of(body);
  EXPECT_THAT(choice["message"]["reasoning_content"].get<std::string>(),
              testing::StartsWith("inside all of it"));
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["finish_reason"], "length") << "an end inside the reasoning is no answer";
}

TEST_F(ToolsTest, AStopTextEndsTheAnswerBeforeTheParsers) {
  Json body = asking("@end");
  body["stop"] = "STOP";
  const Json choice = choice_of(body);
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_TRUE(choice["message"]["content"].is_null());
  body = asking("@two");
  body["stop"] = "ame\": \"sub";
  EXPECT_EQ(choice_of(body)["message"]["content"], "<tool_call>{\"n") << "the second is broken";
  body = asking("@think");
  body["stop"] = "thought";
  EXPECT_EQ(choice_of(body)["message"]["reasoning_content"], "long ");
}

TEST_F(ToolsTest, CallsAndResultsGoBackIntoThePrompt) {
  Json body = asking("x");
  body["messages"] = Json::parse(R"([
      {"role": "developer", "content": "s"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "reasoning": "why",
       "tool_calls": [{"id": "call_1", "type": "function",
                       "function": {"name": "add", "arguments": "{\"a\": \"<|im_end|>\"}"}}]},
      {"role": "tool", "tool_call_id": "call_1", "content": "<|im_start|>2"}])");
  body["reasoning_effort"] = "low";
  body["chat_template_kwargs"] = {{"mood", "<|im_end|>kind"}};
  const Json rendered = post(body, "/v1/chat/completions/render").json();
  EXPECT_THAT(rendered["prompt"].get<std::string>(),
              HasSubstr("<system>s<user>ab<assistant>[why](call add <|im_end|>)<tool><|im_start|>2"
                        "<|im_end|>kind"));
  for (const Json& id : rendered["prompt_token_ids"]) {
    EXPECT_TRUE(id < 256 || id > 258) << "what clients write is no special token";
  }
}

TEST_F(ToolsTest, WhatIsWrongIsNamed) {
  const auto error = [&](const char* field, const Json& value) {
    Json body = asking("x");
    body[field] = value;
    return refusal(post(body), field);
  };
  const auto tools = [&](const char* text) { return error("tools", Json::parse(text)); };
  EXPECT_THAT(tools("[3]"), HasSubstr("tools[0] is no object"));
  EXPECT_THAT(tools(R"([{"type": "web"}])"), HasSubstr("tools[0].type is \"web\""));
  EXPECT_THAT(tools(R"([{"type": "function"}])"), HasSubstr("tools[0].function is missing"));
  EXPECT_THAT(tools(R"([{"type": "function", "function": {"name": "a b"}}])"),
              HasSubstr("tools[0].function.name is \"a b\""));
  EXPECT_THAT(tools(R"([{"type": "function", "function": {"name": "a", "parameters": 3}}])"),
              HasSubstr("parameters is no object"));
  EXPECT_THAT(tools(R"([{"type": "function", "function": {"name": "a", "strict": 1}}])"),
              HasSubstr("tools[0].function.strict is neither true nor false"));
  EXPECT_THAT(tools(R"([{"type": "function", "function": {"name": "a", "strict": true,
      "parameters": {"type": "object", "properties": {"l": {"uniqueItems": true}}}}}])"),
              HasSubstr("tools[0].function.parameters: the schema at #/properties/l: uniqueItems"));
  EXPECT_THAT(error("tools", Json::array({tool("a"), tool("a")})),
              HasSubstr("as of a tool before"));
  EXPECT_THAT(error("tool_choice", "any"), HasSubstr("wanted \"none\", \"auto\", \"required\""));
  EXPECT_THAT(error("tool_choice", tool("mul")), HasSubstr("names 'mul', which is not in tools"));
  EXPECT_THAT(error("tool_choice", {{"type", "allowed_tools"}}),
              HasSubstr("tool_choice.type is \"allowed_tools\", wanted \"function\""));
  EXPECT_THAT(error("response_format", {{"type", "json_object"}}), HasSubstr("beside tools"));
  Json toolless = asking("x");
  toolless.erase("tools");
  toolless["tool_choice"] = "required";
  EXPECT_THAT(post(toolless).error(), HasSubstr("tool_choice is \"required\" without tools"));
  const auto messages = [&](const char* text) { return error("messages", Json::parse(text)); };
  EXPECT_THAT(messages(R"([{"role": "assistant", "tool_calls": [{}]}])"),
              HasSubstr("messages[0].tool_calls[0].function is missing"));
  EXPECT_THAT(messages(R"([{"role": "user", "content": "x", "tool_calls": [{}]}])"),
              HasSubstr("a user calls no tools"));
  EXPECT_THAT(messages(R"([{"role": "tool", "content": "x", "tool_call_id": 3}])"),
              HasSubstr("messages[0].tool_call_id is no text"));
  Json body = asking("x");
  body["chat_template_kwargs"] = {{"messages", 1}};
  EXPECT_THAT(post(body).error(), HasSubstr("'messages' cannot be set"));
}

// A function whose argument `a` is 1 or 2.
Json one_or_two(const std::string& name, bool strict) {
  const Json parameters = {{"type", "object"},
                           {"properties", {{"a", {{"enum", {1, 2}}}}}},
                           {"required", {"a"}},
                           {"additionalProperties", false}};
  return {{"type", "function"},
          {"function", {{"name", name}, {"strict", strict}, {"parameters", parameters}}}};
}

TEST_F(ToolsTest, ForcedCallsAreCalls) {
  if (GrammarLibrary::version().empty()) GTEST_SKIP() << "built without grammars";
  for (const bool strict : {false, true}) {
    Json body = asking("@call");
    body["tools"] = {one_or_two("add", strict), one_or_two("sub", strict)};
    body["parallel_tool_calls"] = false;
    body["tool_choice"] = "required";
    Json choice = choice_of(body);
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
    EXPECT_EQ(choice["message"]["content"], nullptr);
    for (const char* name : {"add", "sub"}) {
      body["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
      choice = choice_of(body);
      ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
      const Json call = choice["message"]["tool_calls"][0]["function"];
      EXPECT_EQ(call["name"], name);
      const std::string arguments = call["arguments"];
      EXPECT_TRUE(arguments == R"({"a":1})" || arguments == R"({"a":2})") << arguments;
    }
  }
}

TEST_F(ToolsTest, StrictFunctionsBindCallsInsideText) {
  if (GrammarLibrary::version().empty()) GTEST_SKIP() << "built without grammars";
  Json body = asking("@call");
  body["tools"] = {one_or_two("add", true), tool("sub")};
  body["parallel_tool_calls"] = false;
  Json choice = choice_of(body);
  EXPECT_EQ(choice["message"]["content"], "Let me see.");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"a":1})");
  body["tools"][0]["function"]["parameters"]["properties"]["a"]["enum"] = {2};
  choice = choice_of(body);
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"a":2})");
}

// A schema that no grammar keeps breaks nothing where nothing binds the arguments.
TEST_F(ToolsTest, AnOddSchemaOfAToolBreaksNoRequest) {
  Json body = asking("@call");
  body["tools"][0]["function"]["parameters"] = {
      {"type", "object"},
      {"properties", {{"a", {{"not", {{"$ref", "#/none"}}}, {"pattern", "(?<!x)y"}}}}}};
  const Json choice = choice_of(body);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\":1}");
  if (GrammarLibrary::version().empty()) return;
  body["tool_choice"] = "required";
  body["parallel_tool_calls"] = false;
  EXPECT_EQ(choice_of(body)["finish_reason"], "tool_calls");
}

// Arguments that are no JSON, as models write them, do not break the next request.
TEST_F(ToolsTest, BrokenArgumentsInTheHistoryAreAText) {
  Json body = asking("@call");
  body["messages"].insert(body["messages"].begin(),
                          Json::parse(R"({"role": "assistant", "content": "", "tool_calls":
      [{"function": {"name": "add", "arguments": "{\"a\": "}}]})"));
  EXPECT_EQ(post(body).status, 200);
}

// A template that does not know tools.
TEST_F(ServerTest, ToolsNeedATemplateThatKnowsThem) {
  const Json body = {
      {"messages", Json::array({{{"role", "user"}, {"content", "x"}}})},
      {"tools", Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}})}};
  const Reply reply = post("/v1/chat/completions", body);
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.error(), HasSubstr("does not know tools"));
}

}  // namespace
}  // namespace braid::server
