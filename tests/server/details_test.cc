// Fields of requests and answers on which clients rely.
#include <algorithm>

#include "server/fixture.h"

namespace braid::server {
namespace {

using testing::HasSubstr;

constexpr int kHalf = 0xc3;  // a token: the first byte of a character of two bytes

Json chat_of(Json more) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "tell me"}}}},
               {"max_tokens", 3},
               {"ignore_eos", true}};
  body.update(more);
  return body;
}

// So large a bias chooses the token.
Json biased(int id) {
  return {{std::to_string(id), 100}};
}

TEST_F(ServerTest, BiasesNameTokensOfTheVocabulary) {
  Json many = Json::object();
  for (int id = 0; id < 256; ++id) many[std::to_string(id)] = id == 97 ? 100 : -1;
  const Json answer =
      complete({{"prompt", "a"}, {"max_tokens", 3}, {"logit_bias", many}, {"top_k", 1}});
  EXPECT_EQ(answer["choices"][0]["text"], "aaa");
  for (const char* id : {"99999999", "-1", "1.5", ""}) {
    const Reply reply = post("/v1/completions", {{"prompt", "a"}, {"logit_bias", {{id, 1}}}});
    EXPECT_EQ(reply.status, 400) << id;
    EXPECT_EQ(reply.json()["error"]["param"], "logit_bias");
  }
}

TEST_F(ServerTest, AnAnswerIsCutWhereTheContextEnds) {
  const Json answer =
      complete({{"prompt", std::vector<int>(500, 97)}, {"max_tokens", 400}, {"ignore_eos", true}});
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["total_tokens"], 512);
}

TEST_F(ServerTest, StopIdsEndAnAnswerWithoutTheirText) {
  const Json answer = complete({{"prompt", "a"},
                                {"stop", nullptr},
                                {"stop_token_ids", {98}},
                                {"logit_bias", biased(98)},
                                {"temperature", 0}});
  EXPECT_EQ(answer["choices"][0]["text"], "");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 1);
}

TEST_F(ServerTest, ALoneSurrogateIsNoText) {
  for (const char* text : {R"("\ud800")", R"("x\udc00y")", R"("\ud800\ud800")"}) {
    Client client(server_->port());
    const Reply reply = client.post("/v1/completions", fmt::format(R"({{"prompt": {}}})", text));
    EXPECT_EQ(reply.status, 400) << text;
    EXPECT_THAT(reply.error(), HasSubstr("is no valid JSON")) << text;
  }
}

TEST_F(ServerTest, EveryChunkCountsWhereTheClientAsks) {
  const Reply reply =
      post("/v1/chat/completions",
           chat_of({{"stream", true},
                    {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}},
                    {"logit_bias", biased(97)}}));
  EXPECT_THAT(reply.head, HasSubstr("Cache-Control: no-cache"));
  EXPECT_THAT(reply.head, HasSubstr("X-Accel-Buffering: no"));
  std::vector<int64_t> tokens, prompts;
  for (const std::string& event : reply.events()) {
    if (event == "[DONE]") continue;
    const Json chunk = Json::parse(event);
    ASSERT_TRUE(chunk["usage"].is_object()) << event;
    tokens.push_back(chunk["usage"]["completion_tokens"].get<int64_t>());
    prompts.push_back(chunk["usage"]["prompt_tokens"].get<int64_t>());
  }
  EXPECT_THAT(tokens, testing::IsSupersetOf({1, 2, 3}));
  EXPECT_TRUE(std::ranges::is_sorted(tokens));
  EXPECT_THAT(prompts, testing::Each(testing::AllOf(testing::Gt(0), testing::Eq(prompts[0]))));
}

// Lists that are short, and a token that is no whole character.
TEST_F(ServerTest, TheChosenTokenIsListedAndItsBytesAreExact) {
  Json body = chat_of({{"logprobs", true}, {"top_logprobs", 0}, {"logit_bias", biased(kHalf)}});
  const Json none = post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(none.size(), 3u);
  for (const Json& token : none) {
    EXPECT_EQ(token["top_logprobs"], Json::array());
    EXPECT_EQ(token["bytes"], Json::array({kHalf}));
    EXPECT_EQ(token["token"], "\ufffd");
  }
  // Biases change the choice, and not the model's own distribution.
  const Json answer = complete(
      {{"prompt", "hello"}, {"max_tokens", 3}, {"logprobs", 1}, {"logit_bias", biased(97)}});
  const Json& logprobs = answer["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(logprobs["tokens"][i], "a");
    EXPECT_EQ(logprobs["top_logprobs"][i]["a"], logprobs["token_logprobs"][i]);
    EXPECT_LE(logprobs["top_logprobs"][i].size(), 2u);
  }
}

// Equal for equal servers, in every chunk, and another one for another version or plan.
TEST_F(ServerTest, AFingerprintNamesVersionModelAndPlan) {
  const auto fingerprint = [](const ServerConfig& config) {
    Server server(config, [](const std::string&) {});
    server.load();
    Client client(server.port());
    const Json answer =
        client.post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})").json();
    return answer["system_fingerprint"].get<std::string>();
  };
  ServerConfig config = config_for(folder_->path().string());
  const std::string first = fingerprint(config);
  EXPECT_THAT(first, testing::StartsWith("fp_"));
  EXPECT_EQ(first.size(), 19u);
  EXPECT_EQ(fingerprint(config), first);
  for (const std::string& event :
       post("/v1/chat/completions", chat_of({{"stream", true}})).events()) {
    if (event == "[DONE]") continue;
    EXPECT_EQ(Json::parse(event)["system_fingerprint"], first) << event;
  }
  config.version = "0.0.other";
  EXPECT_NE(fingerprint(config), first);
  config.version = "0.0.test";
  config.engine.kv_dtype = DType::f16;
  EXPECT_NE(fingerprint(config), first);
}

TEST_F(ServerTest, ScoresOfPromptsHaveABound) {
  for (const int count : {-1, 1000}) {
    const Reply reply =
        post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}, {"prompt_logprobs", count}});
    EXPECT_EQ(reply.status, 400) << count;
    EXPECT_EQ(reply.json()["error"]["param"], "prompt_logprobs");
  }
}

}  // namespace
}  // namespace braid::server
