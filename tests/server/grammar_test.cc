// Structured output over HTTP, with a model of random weights: what the masks allow is all that its
// answers have in common.
#include <filesystem>
#include <future>

#include "server/fixture.h"
#include "server/schema_check.h"

namespace braid::server {
namespace {

using testing::HasSubstr;

class GrammarTest : public ServerTest {
 protected:
  void SetUp() override {
    if (GrammarLibrary::version().empty()) GTEST_SKIP() << "built without grammars";
  }
  static Json asking(const Json& more) {
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})},
                 {"max_tokens", 300},
                 {"temperature", 1},
                 {"n", 4}};
    body.update(more);
    return body;
  }
  static Json schema(const Json& s) {
    return {{"response_format",
             {{"type", "json_schema"}, {"json_schema", {{"name", "s"}, {"schema", s}}}}}};
  }
  // The texts of answers that ended by themselves.
  static std::vector<std::string> answers(const Json& more) {
    const Reply reply = post("/v1/chat/completions", asking(more));
    EXPECT_EQ(reply.status, 200) << reply.body << "\n" << more;
    std::vector<std::string> texts;
    for (const Json& choice : reply.json().value("choices", Json::array())) {
      if (choice["finish_reason"] == "stop") texts.push_back(choice["message"]["content"]);
    }
    return texts;
  }
};

TEST_F(GrammarTest, AnswersFulfilTheirSchema) {
  const char* schemas[] = {
      R"({"type": "object", "properties": {"b": {"type": "integer", "minimum": -5, "maximum": 300},
          "a": {"type": "string", "maxLength": 4}}, "required": ["b"], "additionalProperties": false})",
      R"({"type": "array", "items": {"enum": ["x", 1, null, [2]]}, "minItems": 1, "maxItems": 3})",
      R"({"type": "number", "minimum": 0.5, "maximum": 2})",
      R"({"type": "string", "pattern": "^[a-c]+-\\d{2}$"})",
      R"({"type": "string", "pattern": "b"})",
      R"({"type": "string", "minLength": 2, "maxLength": 5})",
      R"({"type": ["boolean", "null"]})",
      R"({"oneOf": [{"$ref": "#/$defs/t"}, {"type": "null"}], "$defs": {"t": {"const": {"k": 1.5}}}})",
      R"({"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "integer"}], "items": false})",
      R"({"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 100})",
      R"({"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
          "required": ["n"], "additionalProperties": false})",
      R"({"type": "object", "required": ["k"], "maxProperties": 2, "additionalProperties": {"type": "boolean"}})",
  };
  int ended = 0;
  for (const char* text : schemas) {
    Json s = Json::parse(text);
    const auto all = answers(schema(s));
    s.erase("maxProperties");
    for (const std::string& answer : all) {
      const Json value = Json::parse(answer, nullptr, false);
      EXPECT_TRUE(!value.is_discarded() && fulfils(value, s, s)) << text << "\n" << answer;
      ++ended;
    }
  }
  EXPECT_GT(ended, 24) << "nearly all answers were cut";
}

TEST_F(GrammarTest, AnswersFollowWhatBindsThem) {
  // JSON bounds no exponent, the parser does. Texts that it takes stay: "\\u6E041" has no exponent.
  const auto parse = [](const std::string& text) {
    static const std::regex exponent("([0-9])[eE][+-]?[0-9]{3,}");
    const Json as_it_is = Json::parse(text, nullptr, false);
    if (!as_it_is.is_discarded()) return as_it_is;
    return Json::parse(std::regex_replace(text, exponent, "$1"), nullptr, false);
  };
  const auto match = [](const Json& outputs, const std::string& pattern) {
    for (const std::string& answer : answers({{"structured_outputs", outputs}}))
      EXPECT_TRUE(std::regex_match(answer, std::regex(pattern))) << outputs << " " << answer;
  };
  match({{"regex", "(ab|c)+\\d?"}}, "(ab|c)+\\d?");
  match({{"regex", "[^a-y]{3}"}}, "[^a-y]+");
  match({{"choice", {"yes", "no\"\n"}}}, "yes|no\"\n");
  match({{"grammar", "root ::= \"<\" [0-9]+ \">\""}}, "<[0-9]+>");
  match({{"json", R"({"const": "q"})"}}, "\"q\"");
  for (const std::string& answer : answers({{"response_format", {{"type", "json_object"}}}}))
    EXPECT_TRUE(parse(answer).is_object()) << answer;
  // A completion's text is bound, too; both fields may be there if one says nothing.
  const Json done = complete({{"prompt", "x"},
                              {"max_tokens", 20},
                              {"response_format", {{"type", "text"}}},
                              {"structured_outputs", {{"choice", {"maybe"}}}}});
  EXPECT_EQ(done["choices"][0]["text"], "maybe");
}

TEST_F(GrammarTest, AStopTextEndsBoundAnswersAndDoesNotLeak) {
  for (const bool stream : {false, true}) {
    Json body = asking({{"structured_outputs", {{"regex", "[0-9]{4}STOP[0-9]{4}"}}},
                        {"stop", "OP"},
                        {"stream", stream},
                        {"n", 1}});
    const Reply reply = post("/v1/chat/completions", body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    std::string text;
    if (stream) {
      for (const std::string& event : reply.events()) {
        if (event == "[DONE]") continue;
        text += Json::parse(event)["choices"][0]["delta"].value("content", "");
      }
    } else {
      text = reply.json()["choices"][0]["message"]["content"];
    }
    EXPECT_TRUE(std::regex_match(text, std::regex("[0-9]{4}ST"))) << text;
  }
}

TEST_F(GrammarTest, NamesWhatIsWrong) {
  const auto outputs = [](const Json& o) { return Json{{"structured_outputs", o}}; };
  const auto format = [](const Json& f) { return Json{{"response_format", f}}; };
  struct Case {
    Json more;
    const char *param, *message;
  };
  const std::vector<Case> cases = {
      {format(Json::object()), "response_format", "response_format.type is no text"},
      {format({{"type", "xml"}}), "response_format", "type is 'xml', wanted text, json_object"},
      {format({{"type", "json_schema"}}), "response_format", "json_schema is no object"},
      {format({{"type", "json_schema"}, {"json_schema", {{"name", "a"}}}}), "response_format",
       "json_schema.schema is missing"},
      {format("json"), "response_format", "wanted object"},
      {schema({{"type", "array"}, {"uniqueItems", true}}), "response_format",
       "the schema at #: uniqueItems is not supported"},
      {schema(false), "response_format", "false"},
      {schema({{"type", "number"}, {"multipleOf", 2}}), "response_format", "multipleOf"},
      {schema({{"type", "integer"}, {"minimum", 3}, {"maximum", 2}}), "response_format", "range"},
      {schema(Json::parse(R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})")),
       "response_format", "oneOf"},
      {outputs({{"regex", "a"}, {"choice", {"a"}}}), "structured_outputs",
       "has regex and choice, wanted one"},
      {outputs({{"regex", 1}}), "structured_outputs", "regex is no text"},
      {outputs({{"regex", "(?=a)"}}), "structured_outputs", "looks around"},
      {outputs({{"choice", Json::array()}}), "structured_outputs", "choice is empty"},
      {outputs({{"choice", {1}}}), "structured_outputs", "choice is no list of texts"},
      {outputs({{"choice", {""}}}), "structured_outputs", "an empty text"},
      {outputs({{"json", "{"}}), "structured_outputs", "json is no JSON"},
      {outputs({{"json_object", false}}), "structured_outputs", "is not true"},
      {outputs({{"structural_tag", "{}"}}), "structured_outputs",
       "structural_tag is not supported"},
      {outputs({{"grammar", "rot ::= \"a\""}}), "structured_outputs", "root"},
      {outputs({{"grammar", "root ::= \"a"}}), "structured_outputs", "structured_outputs: EBNF"},
      {Json{{"response_format", {{"type", "json_object"}}},
            {"structured_outputs", {{"regex", "a"}}}},
       "structured_outputs", "beside response_format"},
      {Json{{"response_format", {{"type", "json_object"}}}, {"ignore_eos", true}}, "ignore_eos",
       "its answers end"},
      {Json{{"response_format", {{"type", "json_object"}}}, {"min_tokens", 3}}, "min_tokens",
       "end by themselves"},
  };
  for (const Case& c : cases) {
    const Reply reply = post("/v1/chat/completions", asking(c.more));
    EXPECT_EQ(reply.status, 400) << c.more;
    EXPECT_THAT(reply.error(), HasSubstr(c.message));
    EXPECT_EQ(reply.json()["error"]["param"], c.param) << c.more;
    EXPECT_EQ(reply.json()["error"]["type"], "invalid_request_error");
  }
}

// A schema that compiles for long: each level has six times the ways to go on.
Json slow_schema() {
  Json s = {{"type", "string"}};
  for (int i = 0; i < 6; ++i) {
    Json branches = Json::array();
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
      const std::string key = name + std::to_string(i);
      branches.push_back({{"type", "object"},
                          {"properties", {{key, s}}},
                          {"required", {key}},
                          {"additionalProperties", false}});
    }
    s = {{"anyOf", branches}};
  }
  return s;
}

class GrammarLimitsTest : public ServerTest {
 protected:
  void SetUp() override {
    if (GrammarLibrary::version().empty()) GTEST_SKIP() << "built without grammars";
  }
  static Reply ask(Client& client, const Json& schema) {
    const Json body = {
        {"prompt", "x"}, {"max_tokens", 5}, {"structured_outputs", {{"json", schema}}}};
    return client.post("/v1/completions", body.dump());
  }
  static Reply ask(Server& server, const Json& schema) {
    Client client(server.port());
    return ask(client, schema);
  }
  static std::unique_ptr<Server> serve(const GrammarLimits& limits, int compilers = 2) {
    ServerConfig config = config_for(folder_->path().string());
    config.grammars.limits = limits;
    config.grammars.compilers = compilers;
    config.http.max_body = 10'000'000;
    auto server = std::make_unique<Server>(config, [](const std::string&) {});
    server->load();
    return server;
  }
};

TEST_F(GrammarLimitsTest, ASlowSchemaDelaysNobodyAndEnds) {
  const auto server = serve({.seconds = 5, .memory = int64_t{8} << 30});
  auto slow = std::async(std::launch::async, [&] { return ask(*server, slow_schema()); });
  // Others are answered meanwhile, those with a grammar of their own, too.
  int answered = 0;
  while (slow.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    Client client(server->port());
    EXPECT_EQ(client.post("/v1/completions", R"({"prompt": "x", "max_tokens": 1})").status, 200);
    EXPECT_EQ(ask(*server, {{"enum", {answered}}}).status, 200);
    ++answered;
  }
  EXPECT_GE(answered, 1);
  const Reply reply = slow.get();
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.error(),
            "structured_outputs: the grammar takes over 5 s to compile, which is the limit");
  // The second time the reason is known.
  EXPECT_EQ(ask(*server, slow_schema()).error(), reply.error());
}

// A helper that takes a minute for one schema, seven times at once, and no longer for others.
TEST_F(GrammarLimitsTest, HelpersOfAMinuteDelayNobody) {
  const std::string helper = (folder_->path() / "slow_helper").string();
  std::ofstream(helper)
      << "#!/bin/sh\nT=$(mktemp)\ncat > \"$T\"\n"
      << "head -n 1 \"$T\" | grep -q takes-a-minute && rm \"$T\" && exec sleep 60\n"
      << BRAID_BIN_DIR "/braid \"$1\" < \"$T\"\nS=$?\nrm \"$T\"\nexit $S\n";
  std::filesystem::permissions(helper, std::filesystem::perms::owner_all);
  ServerConfig config = config_for(folder_->path().string());
  config.grammars.program = helper;
  config.grammars.limits.seconds = 90;
  auto server = std::make_unique<Server>(config, [](const std::string&) {});
  server->load();
  std::vector<std::future<int>> slow;
  for (int i = 0; i + 1 < config.grammars.compilers; ++i) {
    slow.push_back(std::async(std::launch::async, [&server, i] {
      try {
        return ask(*server, {{"const", "takes-a-minute" + std::to_string(i)}}).status;
      } catch (const std::exception&) {
        return 0;  // the connection is gone
      }
    }));
  }
  for (int i = 0; i < 4; ++i) {
    Client client(server->port());
    EXPECT_EQ(client.post("/v1/completions", R"({"prompt": "x", "max_tokens": 9})").status, 200);
    EXPECT_EQ(ask(*server, {{"enum", {i}}}).status, 200);
    EXPECT_EQ(ask(*server, {{"type", "boolean"}}).status, 200);
  }
  for (auto& one : slow) {
    EXPECT_EQ(one.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  }
  server.reset();
  for (auto& one : slow) EXPECT_NE(one.get(), 200);
}

TEST_F(GrammarLimitsTest, NamesTheLimitOfMemory) {
  const auto server = serve({.seconds = 60, .memory = 1 << 20});
  EXPECT_EQ(ask(*server, slow_schema()).error(),
            "structured_outputs: the grammar takes over 1 MiB to compile, which is the limit");
}

TEST_F(GrammarLimitsTest, NamesTheLimitOfTheResult) {
  const auto server = serve({.result = 1});
  EXPECT_THAT(ask(*server, {{"type", "string"}}).error(), HasSubstr("the compiled grammar has"));
}

TEST_F(GrammarLimitsTest, EndsWhileAGrammarCompiles) {
  auto server = serve({.seconds = 100, .memory = int64_t{8} << 30}, 1);
  Client client(server->port());
  auto slow = std::async(std::launch::async, [&] {
    try {
      return ask(client, slow_schema()).status;
    } catch (const std::exception&) {
      return 0;  // the connection is gone
    }
  });
  Client other(server->port());
  EXPECT_EQ(other.post("/v1/completions", R"({"prompt": "x", "max_tokens": 1})").status, 200);
  server.reset();
  slow.get();
}

TEST_F(ServerTest, WithoutGrammarsSaysSo) {
  if (!GrammarLibrary::version().empty()) GTEST_SKIP() << "built with grammars";
  const Reply reply =
      post("/v1/completions", {{"prompt", "x"}, {"structured_outputs", {{"regex", "a"}}}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.error(), "structured_outputs: this server was built without grammars");
}

}  // namespace
}  // namespace braid::server
