#pragma once

#include "server/fixture.h"
#include "server/scripted_model.h"

namespace braid::server {

// Qwen's way of writing tools, with the last message's text as the begin of the answer.
inline constexpr const char* kToolTemplate =
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}<tool_call>{% endif %}"
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}(call {{ c.function.name }} "
    "{{ c.function.arguments.a }}){% endfor %}{% endfor %}"
    "{% if mood %}{{ mood }}{% endif %}{% if opened %}<think>{% endif %}";

// A server whose model calls tools and thinks as its scripts say.
class ScriptedTest : public testing::Test {
 public:
  static void SetUpTestSuite() {
    model_ = new ScriptedModel(
        "tools",
        {{"@call", "Let me see.\n", "<tool_call>\n", "{\"name\": \"add\", \"argu",
          "ments\": {\"a\": 1}}", "\n</tool_call>", "\n"},
         {"@two", " <tool_call>", "{\"name\": \"add\"}", "</tool_call> <tool_call>",
          "{\"name\": \"sub\"}</tool_", "call>"},
         {"@broken", "<tool_call> ", "{\"name\": \"add\", \"argu "},
         {"@think", "\n<think>", "\nlong ", "thought\n", "</thi", "nk>\n\n", "The answer"},
         {"@fault", "fine ", "so far", ScriptedModel::kNoNumber, "never"},
         {"@end", "<tool_call>{\"name\": \"sub\"}</tool_call> ", "STOP here"},
         // What a template that opens the reasoning itself ends with.
         {"<think>", "inside", " all of it"}},
        kToolTemplate);
    ServerConfig config = config_for(model_->path());
    config.defaults->temperature = 0;
    server_ = new Server(config, [](const std::string&) {});
    server_->load();
  }
  static void TearDownTestSuite() {
    delete std::exchange(server_, nullptr);
    delete std::exchange(model_, nullptr);
  }

  void TearDown() override { expect_nothing_left(server_->port()); }

  static Json tool(const std::string& name) {
    return {
        {"type", "function"},
        {"function",
         {{"name", name}, {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}};
  }
  static Json asking(const std::string& text) {
    return {{"messages", Json::array({{{"role", "user"}, {"content", text}}})},
            {"tools", Json::array({tool("add"), tool("sub")})}};
  }
  // The message of a refusal that names `field`.
  static std::string refusal(const Reply& reply, const std::string& field) {
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_EQ(reply.json()["error"]["param"], field);
    return reply.error();
  }
  static Reply post(const Json& body, const std::string& path = "/v1/chat/completions") {
    Client client(server_->port());
    return client.post(path, body.dump());
  }

  inline static ScriptedModel* model_ = nullptr;
  inline static Server* server_ = nullptr;
};

}  // namespace braid::server
