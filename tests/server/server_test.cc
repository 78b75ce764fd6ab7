// The server's answers: shapes, streams, log-probabilities, seeds.
#include <thread>

#include "server/fixture.h"

namespace braid::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ServerTest, AnswersACompletionInOpenAisShape) {
  const Json answer =
      complete({{"prompt", "hello there"}, {"max_tokens", 5}, {"ignore_eos", true}});
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "tiny");
  ASSERT_EQ(answer["choices"].size(), 1u);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 5);
  EXPECT_EQ(answer["usage"]["total_tokens"], answer["usage"]["prompt_tokens"].get<int>() + 5);
}

TEST_F(ServerTest, AStreamJoinedIsTheWholeAnswer) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "tell me"}}}},
               {"max_tokens", 24},
               {"ignore_eos", true},
               {"n", 2}};
  const Json whole = post("/v1/chat/completions", body).json();
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const Reply reply = post("/v1/chat/completions", body);
  EXPECT_THAT(reply.head, HasSubstr("text/event-stream"));
  std::vector<std::string> events = reply.events();
  ASSERT_EQ(events.back(), "[DONE]");
  events.pop_back();
  std::vector<std::string> texts(2), reasons(2);
  std::vector<int> roles(2);
  Json usage;
  std::string id;
  for (const std::string& event : events) {
    const Json chunk = Json::parse(event);
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    if (id.empty()) id = chunk["id"];
    EXPECT_EQ(chunk["id"], id);
    EXPECT_TRUE(usage.is_null()) << "a chunk behind the usage";
    if (chunk["choices"].empty()) {
      usage = chunk["usage"];
      continue;
    }
    const Json& choice = chunk["choices"][0];
    const size_t index = choice["index"];
    if (choice["delta"].contains("role")) {
      ++roles[index];
      EXPECT_TRUE(texts[index].empty());
    }
    if (choice["delta"].contains("content"))
      texts[index] += choice["delta"]["content"].get<std::string>();
    if (!choice["finish_reason"].is_null())
      reasons[index] += choice["finish_reason"].get<std::string>();
  }
  EXPECT_THAT(roles, ElementsAre(1, 1));
  EXPECT_THAT(reasons, ElementsAre("length", "length"));
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(texts[i], whole["choices"][i]["message"]["content"].get<std::string>());
  EXPECT_EQ(usage["completion_tokens"], 48);
  EXPECT_EQ(usage["prompt_tokens"], whole["usage"]["prompt_tokens"]);
}

TEST_F(ServerTest, StopTextsNeverLeakAndCountAsGenerated) {
  const Json plain = complete({{"prompt", "abc"}, {"max_tokens", 30}, {"ignore_eos", true}});
  const std::string text = plain["choices"][0]["text"];
  ASSERT_GT(text.size(), 12u);
  // Whole characters from the middle of the answer.
  const auto border = [&](size_t i) {
    while (i < text.size() && (text[i] & 0xc0) == 0x80) ++i;
    return i;
  };
  const size_t begin = border(text.size() / 2);
  const std::string stop = text.substr(begin, border(begin + 2) - begin);
  const size_t at = text.find(stop);
  Json body = {{"prompt", "abc"}, {"max_tokens", 30}, {"ignore_eos", true}, {"stop", stop}};
  const Json cut = complete(body);
  EXPECT_EQ(cut["choices"][0]["text"], text.substr(0, at));
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "stop");
  EXPECT_GT(cut["usage"]["completion_tokens"], 0);
  body["include_stop_str_in_output"] = true;
  EXPECT_EQ(complete(body)["choices"][0]["text"], text.substr(0, at) + stop);
}

TEST_F(ServerTest, LogProbabilitiesAreFiniteAndLineUp) {
  const Json answer = complete({{"prompt", "hello"},
                                {"max_tokens", 4},
                                {"ignore_eos", true},
                                {"logprobs", 2},
                                {"echo", true}});
  const Json& choice = answer["choices"][0];
  const Json& logprobs = choice["logprobs"];
  const size_t n = answer["usage"]["total_tokens"];
  for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(logprobs[name].size(), n) << name;
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  for (size_t i = 1; i < n; ++i) EXPECT_LE(logprobs["token_logprobs"][i].get<double>(), 0);
  EXPECT_THAT(choice["text"].get<std::string>(), testing::StartsWith("hello"));
  // Prompts alone are scored with max_tokens 0.
  const Json scored =
      complete({{"prompt", "hello"}, {"max_tokens", 0}, {"logprobs", 1}, {"echo", true}});
  EXPECT_EQ(scored["choices"][0]["text"], "hello");
  EXPECT_EQ(scored["choices"][0]["logprobs"]["tokens"].size(),
            scored["usage"]["prompt_tokens"].get<size_t>());

  const Json chat =
      post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "x"}}}},
                                    {"max_tokens", 3},
                                    {"ignore_eos", true},
                                    {"logprobs", true},
                                    {"top_logprobs", 2}})
          .json();
  const Json& content = chat["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
}

TEST_F(ServerTest, PromptsComeAsTextsAndIdsInLists) {
  const Json ids = post("/tokenize", {{"prompt", "hello"}}).json()["tokens"];
  EXPECT_EQ(post("/detokenize", {{"tokens", ids}}).json()["prompt"], "hello");
  const Json base = {{"max_tokens", 4}, {"ignore_eos", true}};
  Json one = base, many = base;
  one["prompt"] = ids;
  many["prompt"] = Json::array({ids, ids});
  many["n"] = 2;
  const Json single = complete(one), four = complete(many);
  ASSERT_EQ(four["choices"].size(), 4u);
  for (const Json& choice : four["choices"])
    EXPECT_EQ(choice["text"], single["choices"][0]["text"]);
  EXPECT_EQ(four["usage"]["prompt_tokens"], 2 * single["usage"]["prompt_tokens"].get<int>());
}

TEST_F(ServerTest, SeedsRepeatAndChoicesDiffer) {
  Json body = {{"prompt", "abc"},    {"max_tokens", 16}, {"ignore_eos", true},
               {"temperature", 1.5}, {"seed", 7},        {"n", 3}};
  const Json first = complete(body), again = complete(body);
  EXPECT_EQ(first["choices"], again["choices"]);
  EXPECT_NE(first["choices"][0]["text"], first["choices"][1]["text"]);
  body["seed"] = -5;
  EXPECT_NE(complete(body)["choices"][0]["text"], first["choices"][0]["text"]);
  body.erase("seed");
  EXPECT_NE(complete(body)["choices"], complete(body)["choices"]) << "no seed: random";
}

TEST_F(ServerTest, ManyAtOnceGetTheAnswersOfEachAlone) {
  std::vector<std::string> want(12), got(12);
  const auto body = [](size_t i) {
    return Json{{"prompt", "request " + std::string(i + 1, 'a')},
                {"max_tokens", 12 + i},
                {"ignore_eos", true},
                {"temperature", i % 2},
                {"seed", i}};
  };
  for (size_t i = 0; i < want.size(); ++i) want[i] = complete(body(i))["choices"][0]["text"];
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i)
    threads.emplace_back([&, i] { got[i] = complete(body(i))["choices"][0]["text"]; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace braid::server
