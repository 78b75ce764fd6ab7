#include "braid/io/jinja/chat_template.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace braid {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{{ tools is none }} {{ x is defined }} {{ add_generation_prompt }}";

TEST(ChatTemplate, GivesTheVariablesOfHuggingFace) {
  const ChatTemplate chat(kTemplate, {{"bos_token", "<s>"}});
  ChatInput input;
  input.messages = ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");
  EXPECT_EQ(chat.render(input), "<s>[user] Hi\nTrue False True");
  input.tools = ordered_json::parse(R"([{"type": "function"}])");
  input.variables = {{"x", 1}, {"bos_token", "<other>"}};
  input.add_generation_prompt = false;
  EXPECT_EQ(chat.render(input), "<other>[user] Hi\nFalse True False");
}

TEST(ChatTemplate, RefusesWhatIsNoConversation) {
  const ChatTemplate chat(kTemplate, {});
  const auto error_of = [&](ChatInput input) -> std::string {
    try {
      return "rendered: " + chat.render(input);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
  };
  ChatInput input;
  input.messages = "Hi";
  EXPECT_EQ(error_of(input), "messages must be an array, not string");
  input.messages = ordered_json::array({ordered_json::object(), 3});
  EXPECT_EQ(error_of(input), "messages[1] must be an object, not number");
  input.messages = ordered_json::array();
  input.tools = ordered_json::object();
  EXPECT_EQ(error_of(input), "tools must be an array, not object");
  input.tools = nullptr;
  input.variables = {{"messages", 1}};
  EXPECT_EQ(error_of(input), "the template variable 'messages' cannot be set as an extra one");
}

TEST(ChatTemplate, ChoosesAmongNamedTemplates) {
  EXPECT_EQ(find_chat_template(ordered_json::object(), false), std::nullopt);
  EXPECT_EQ(find_chat_template({{"chat_template", "T"}}, true), "T");
  const auto config = ordered_json::parse(
      R"({"chat_template": [{"name": "default", "template": "D"},
                            {"name": "tool_use", "template": "U"}]})");
  EXPECT_EQ(find_chat_template(config, false), "D");
  EXPECT_EQ(find_chat_template(config, true), "U");
  for (const char* bad : {R"([])", R"([{"name": "rag", "template": "R"}])", R"(3)", R"([1])",
                          R"([{"name": "default"}])", R"({"name": "default"})"}) {
    EXPECT_THROW(find_chat_template({{"chat_template", ordered_json::parse(bad)}}, false), Error)
        << bad;
  }
}

TEST(ChatTemplate, FindsSpecialTokens) {
  const auto config = ordered_json::parse(
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true},
          "pad_token": null, "add_bos_token": true, "model_max_length": 5})");
  EXPECT_EQ(find_special_tokens(config),
            ordered_json::parse(R"({"bos_token": "<s>", "eos_token": "</s>"})"));
}

TEST(ChatTemplate, RendersFromSeveralThreads) {
  const ChatTemplate chat(
      "{% set ns = namespace(n=0) %}{% for m in messages %}"
      "{% set ns.n = ns.n + m.v %}{% endfor %}{{ ns.n }}",
      {});
  std::vector<std::string> outputs(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < outputs.size(); ++i) {
    threads.emplace_back([&, i] {
      ChatInput input;
      input.messages = ordered_json::array();
      for (size_t k = 0; k < 500; ++k) input.messages.push_back({{"v", i}});
      outputs[i] = chat.render(input);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(outputs, (std::vector<std::string>{"0", "500", "1000", "1500"}));
}

}  // namespace
}  // namespace braid
