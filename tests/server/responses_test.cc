// POST /v1/responses: items in and out, events of streams, what is refused.
#include "server/scripted_server.h"

namespace braid::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ResponsesTest : public ScriptedTest {
 protected:
  static Json flat_tool(const std::string& name) {
    Json function = tool(name)["function"];
    function["type"] = "function";
    return function;
  }
  static Json asking(const std::string& text) {
    return {{"input", text}, {"tools", Json::array({flat_tool("add"), flat_tool("sub")})}};
  }
  static Reply post(const Json& body) { return ScriptedTest::post(body, "/v1/responses"); }

  // Ids and times differ between two answers.
  static Json without_ids(Json output) {
    for (Json& item : output) {
      EXPECT_TRUE(item.contains("id"));
      item.erase("id");
      item.erase("call_id");
    }
    return output;
  }

  // Follows a stream as clients do: each item is opened, filled and closed, one after the other.
  // Returns the last event's response, whose output is what the events said.
  static Json follow(const Reply& stream) {
    Json output = Json::array(), last;
    bool open = false, part = false;
    const auto events = stream.events();
    for (size_t i = 0; i < events.size(); ++i) {
      const Json event = Json::parse(events[i]);
      const std::string type = event["type"];
      EXPECT_EQ(event["sequence_number"], i);
      EXPECT_THAT(stream.body, HasSubstr("event: " + type + "\ndata: " + events[i] + "\n\n"));
      EXPECT_TRUE(last.is_null()) << "an event behind the last";
      if (i < 2) {
        EXPECT_EQ(type, i == 0 ? "response.created" : "response.in_progress");
        EXPECT_EQ(event["response"]["status"], "in_progress");
        continue;
      }
      if (event.contains("response")) {
        EXPECT_FALSE(open);
        last = event["response"];
        EXPECT_EQ(type, "response." + last["status"].get<std::string>());
        EXPECT_EQ(last["output"], output);
        continue;
      }
      if (type == "response.output_item.added") {
        EXPECT_FALSE(open);
        open = true;
        EXPECT_EQ(event["output_index"], output.size());
        EXPECT_EQ(event["item"]["status"], "in_progress");
        output.push_back(event["item"]);
        continue;
      }
      EXPECT_TRUE(open) << type;
      EXPECT_EQ(event["output_index"], output.size() - 1);
      Json& item = output.back();
      if (event.contains("item_id")) {
        EXPECT_EQ(event["item_id"], item["id"]);
      }
      if (type == "response.content_part.added") {
        EXPECT_FALSE(part);
        part = true;
        item["content"].push_back(event["part"]);
      } else if (type == "response.output_text.delta" || type == "response.reasoning_text.delta") {
        EXPECT_TRUE(part);
        Json& text = item["content"][0];
        text["text"] = text["text"].get<std::string>() + event["delta"].get<std::string>();
        for (const Json& one : event.value("logprobs", Json::array()))
          text["logprobs"].push_back(one);
      } else if (type == "response.output_text.done" || type == "response.reasoning_text.done") {
        EXPECT_EQ(event["text"], item["content"][0]["text"]);
      } else if (type == "response.content_part.done") {
        part = false;
        EXPECT_EQ(event["part"], item["content"][0]);
      } else if (type == "response.function_call_arguments.delta") {
        item["arguments"] =
            item["arguments"].get<std::string>() + event["delta"].get<std::string>();
      } else if (type == "response.function_call_arguments.done") {
        EXPECT_EQ(event["arguments"], item["arguments"]);
      } else if (type == "response.output_item.done") {
        EXPECT_FALSE(part);
        open = false;
        item["status"] = event["item"]["status"];
        EXPECT_EQ(event["item"], item);
      } else {
        ADD_FAILURE() << "unknown event " << type;
      }
    }
    return last;
  }

  // A whole response; the same as a stream has to say the same.
  static Json response_of(Json body) {
    const Reply reply = post(body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    const Json whole = reply.json();
    body["stream"] = true;
    const Reply stream = post(body);
    EXPECT_THAT(stream.head, HasSubstr("text/event-stream"));
    const Json last = follow(stream);
    EXPECT_EQ(without_ids(last["output"]), without_ids(whole["output"]));
    EXPECT_EQ(last["status"], whole["status"]);
    EXPECT_EQ(last["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
    return whole;
  }
};

TEST_F(ResponsesTest, AMessageAndACall) {
  const Json response = response_of(asking("@call"));
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_TRUE(response["incomplete_details"].is_null());
  EXPECT_EQ(response["store"], false);
  EXPECT_THAT(response["id"].get<std::string>(), testing::StartsWith("resp_"));
  const Json& output = response["output"];
  ASSERT_EQ(output.size(), 2u) << output;
  EXPECT_EQ(output[0]["type"], "message");
  EXPECT_EQ(output[0]["role"], "assistant");
  EXPECT_EQ(output[0]["content"][0]["type"], "output_text");
  EXPECT_EQ(output[0]["content"][0]["text"], "Let me see.");
  EXPECT_EQ(output[1]["type"], "function_call");
  EXPECT_EQ(output[1]["name"], "add");
  EXPECT_EQ(output[1]["arguments"], "{\"a\":1}");
  EXPECT_THAT(output[1]["call_id"].get<std::string>(), testing::StartsWith("call_"));
  const Json& usage = response["usage"];
  EXPECT_EQ(usage["total_tokens"],
            usage["input_tokens"].get<int>() + usage["output_tokens"].get<int>());
}

TEST_F(ResponsesTest, EventsComeInOpenAisOrder) {
  Json body = asking("@call");
  body["stream"] = true;
  std::vector<std::string> types;
  for (const std::string& event : post(body).events()) {
    const std::string type = Json::parse(event)["type"];
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  EXPECT_THAT(
      types,
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
}

TEST_F(ResponsesTest, ReasoningIsAnItem) {
  const Json response =
      response_of({{"input", "@think"}, {"include", {"message.output_text.logprobs"}}});
  ASSERT_EQ(response["output"].size(), 2u);
  EXPECT_EQ(response["output"][0]["type"], "reasoning");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "long thought");
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "The answer");
  EXPECT_EQ(response["output"][1]["content"][0]["logprobs"].size(), 1u) << "a token is the text";
  EXPECT_GT(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
  const Json open = response_of({{"input", "x"}, {"chat_template_kwargs", {{"opened", true}}}});
  ASSERT_EQ(open["output"].size(), 1u) << "never closed: all of it is reasoning";
  EXPECT_EQ(open["output"][0]["content"][0]["text"], "inside all of it");
}

TEST_F(ResponsesTest, AnAnswerThatIsCutIsIncomplete) {
  Json body = asking("@call");
  body["max_output_tokens"] = 3;
  const Json response = response_of(body);
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["max_output_tokens"], 3);
  ASSERT_EQ(response["output"].size(), 1u);
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
  EXPECT_EQ(response["output"][0]["content"][0]["text"],
            "Let me see.\n<tool_call>\n{\"name\": \"add\", \"argu");
}

TEST_F(ResponsesTest, SeveralCallsAndOneAlone) {
  Json body = asking("@two");
  Json output = response_of(body)["output"];
  ASSERT_EQ(output.size(), 2u) << output;
  EXPECT_EQ(output[0]["name"], "add");
  EXPECT_EQ(output[1]["name"], "sub");
  EXPECT_NE(output[0]["call_id"], output[1]["call_id"]);
  body["parallel_tool_calls"] = false;
  EXPECT_EQ(response_of(body)["output"].size(), 1u);
  body["tool_choice"] = "none";
  EXPECT_EQ(response_of(body)["output"][0]["type"], "message");
}

// The items of an answer go back as they came, and make the prompt that a chat's messages make.
TEST_F(ResponsesTest, ItemsOfEarlierTurnsAreTaken) {
  Json items = Json::parse(R"([
      {"role": "developer", "content": "d"},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"},
                                                      {"type": "input_text", "text": "b"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [], "content":
        [{"type": "reasoning_text", "text": "why"}]},
      {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
       "content": [{"type": "output_text", "text": "c", "annotations": []}]},
      {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add",
       "arguments": "{\"a\": 5}", "status": "completed"},
      {"type": "function_call_output", "call_id": "call_1", "output": "2"},
      {"type": "reasoning", "summary": [], "encrypted_content": "of another server"},
      {"role": "assistant", "content": "so"},
      {"role": "user", "content": "x"}])");
  Json body = asking("");
  body["instructions"] = "s";
  body["input"] = items;
  body["reasoning"] = {{"effort", "low"}};
  body["text"] = {{"verbosity", "high"}};
  const Json chat = {{"tools", Json::array({tool("add"), tool("sub")})},
                     {"messages", Json::parse(R"([
      {"role": "system", "content": "s"}, {"role": "system", "content": "d"},
      {"role": "user", "content": "ab"},
      {"role": "assistant", "content": "c", "reasoning_content": "why", "tool_calls":
        [{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"a": 5}}}]},
      {"role": "tool", "tool_call_id": "call_1", "content": "2"},
      {"role": "assistant", "content": "so"}, {"role": "user", "content": "x"}])")}};
  const Json rendered = ScriptedTest::post(chat, "/v1/chat/completions/render").json();
  EXPECT_THAT(rendered["prompt"].get<std::string>(),
              HasSubstr("<user>ab<assistant>[why]c(call add 5)<tool>2<assistant>so<user>x"));
  const Json response = post(body).json();
  EXPECT_EQ(response["usage"]["input_tokens"], rendered["prompt_token_ids"].size());
  // The prompt's full pages are the chat's: both endpoints computed the same tokens.
  Json again = chat;
  again["max_tokens"] = 1;
  const Json usage = ScriptedTest::post(again).json()["usage"];
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"],
            (usage["prompt_tokens"].get<int>() - 1) / 64 * 64);
  EXPECT_GE(usage["prompt_tokens_details"]["cached_tokens"], 64);
  EXPECT_EQ(response["instructions"], "s");
  EXPECT_EQ(response["reasoning"]["effort"], "low");
  EXPECT_EQ(response["text"]["verbosity"], "high");
}

TEST_F(ResponsesTest, AFormatBindsTheText) {
  if (GrammarLibrary::version().empty()) GTEST_SKIP() << "built without grammars";
  const Json schema = Json::parse(R"({"type": "object", "properties": {"n": {"enum": [1, 2]}},
      "required": ["n"], "additionalProperties": false})");
  const Json format = {
      {"type", "json_schema"}, {"name", "one"}, {"schema", schema}, {"strict", true}};
  const Json response = response_of({{"input", "@end"}, {"text", {{"format", format}}}});
  const std::string text = response["output"].back()["content"][0]["text"];
  const Json value = Json::parse(text);
  EXPECT_TRUE(value == Json({{"n", 1}}) || value == Json({{"n", 2}})) << text;
  EXPECT_EQ(response["text"]["format"], format);
  Json forced = asking("@think");
  forced["tool_choice"] = {{"type", "function"}, {"name", "sub"}};
  forced["max_output_tokens"] = 200;
  const Json output = response_of(forced)["output"];
  EXPECT_EQ(output.back()["name"], "sub") << output;
}

TEST_F(ResponsesTest, WhatIsWrongIsNamed) {
  const auto error = [&](const char* field, const Json& value) {
    Json body = asking("x");
    body[field] = value;
    return refusal(post(body), field);
  };
  const auto input = [&](const char* text) { return error("input", Json::parse(text)); };
  EXPECT_THAT(input("[]"), HasSubstr("input is empty"));
  EXPECT_THAT(input("[3]"), HasSubstr("input[0] is no object"));
  EXPECT_THAT(input("[{}]"), HasSubstr("input[0].role is missing"));
  EXPECT_THAT(input(R"([{"role": "tool", "content": "x"}])"), HasSubstr("input[0].role is 'tool'"));
  EXPECT_THAT(input(R"([{"role": "user"}])"), HasSubstr("input[0].content is missing"));
  EXPECT_THAT(input(R"([{"role": "user", "content": [{"type": "input_image"}]}])"),
              HasSubstr("input[0].content has a part of type 'input_image'"));
  EXPECT_THAT(input(R"([{"type": "item_reference", "id": "msg_1"}])"),
              HasSubstr("input[0] is a reference: this server stores no items"));
  EXPECT_THAT(input(R"([{"type": "web_search_call", "id": "a"}])"),
              HasSubstr("input[0].type is 'web_search_call'"));
  EXPECT_THAT(input(R"([{"type": "function_call", "name": "add", "arguments": {}}])"),
              HasSubstr("input[0].arguments is no text"));
  EXPECT_THAT(input(R"([{"type": "function_call_output", "output": "2"}])"),
              HasSubstr("input[0].call_id is missing"));
  EXPECT_THAT(error("input", 3), HasSubstr("wanted string or array"));
  EXPECT_THAT(error("previous_response_id", "resp_1"), HasSubstr("does not support"));
  EXPECT_THAT(error("background", true), HasSubstr("does not support"));
  EXPECT_THAT(error("response_format", {{"type", "text"}}), HasSubstr("does not support"));
  EXPECT_THAT(error("tools", Json::array({tool("add")})), HasSubstr("tools[0].name is missing"));
  EXPECT_THAT(error("tools", Json::parse(R"([{"type": "web_search"}])")),
              HasSubstr("tools[0].type is \"web_search\""));
  EXPECT_THAT(error("tool_choice", {{"type", "function"}, {"name", "mul"}}),
              HasSubstr("names 'mul', which is not in tools"));
  EXPECT_THAT(error("include", {"everything"}), HasSubstr("include has 'everything'"));
  EXPECT_THAT(error("text", {{"format", {{"type", "xml"}}}}),
              HasSubstr("text.format.type is 'xml'"));
  EXPECT_THAT(error("text", {{"format", {{"type", "json_schema"}}}}),
              HasSubstr("text.format.schema is missing"));
  EXPECT_THAT(error("text", {{"verbosity", 3}}), HasSubstr("text.verbosity is no text"));
  EXPECT_THAT(error("max_output_tokens", 0), HasSubstr("wanted 1 to"));
  EXPECT_EQ(post({{"instructions", "s"}}).error(), "input is missing");
  // Accepted, without effect.
  const Json quiet = {
      {"input", "@end"},          {"store", true}, {"user", "u"}, {"metadata", {{"k", "v"}}},
      {"truncation", "disabled"}, {"n", 1}};
  const Json response = post(quiet).json();
  EXPECT_EQ(response["metadata"]["k"], "v");
  EXPECT_EQ(response["user"], "u");
}

// A fault after the stream's first event is the stream's last event.
TEST_F(ResponsesTest, AFaultInAStreamIsAnEvent) {
  const Json last = follow(post({{"input", "@fault"}, {"stream", true}}));
  EXPECT_EQ(last["status"], "failed");
  EXPECT_EQ(last["error"]["code"], "server_error");
  EXPECT_FALSE(last["error"]["message"].get<std::string>().empty());
  EXPECT_EQ(last["output"][0]["content"][0]["text"], "fine so far<no number>");
  EXPECT_EQ(last["output"][0]["status"], "incomplete");
  const Reply whole = post({{"input", "@fault"}});
  EXPECT_EQ(whole.status, 500) << whole.body;
  const Json chat = {{"messages", Json::array({{{"role", "user"}, {"content", "@fault"}}})},
                     {"stream", true}};
  const auto events = ScriptedTest::post(chat).events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(Json::parse(events[events.size() - 2])["error"]["code"], 500);
}

// A field that another endpoint knows is no field here.
TEST_F(ResponsesTest, FieldsOfOtherEndpointsAreUnknown) {
  const Json body = {
      {"prompt", "x"}, {"max_completion_tokens", "many"}, {"text", 3}, {"max_tokens", 2}};
  EXPECT_EQ(ScriptedTest::post(body, "/v1/completions").status, 200);
}

}  // namespace
}  // namespace braid::server
