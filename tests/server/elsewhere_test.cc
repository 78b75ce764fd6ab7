// What broke in other servers and is tested nowhere else here.
#include <cmath>
#include <set>
#include <thread>

#include "server/fixture.h"

namespace braid::server {
namespace {

using testing::HasSubstr;

int64_t cached(const Json& answer) {
  return answer["usage"]["prompt_tokens_details"]["cached_tokens"];
}

std::string metrics(int port) {
  Client client(port);
  return client.get("/metrics").body;
}

// A token that cannot be chosen has a log-probability of -inf, which JSON does not know.
TEST_F(ServerTest, NoLogProbabilityIsInfinite) {
  const Json answer = complete({{"prompt", "hello"},
                                {"max_tokens", 4},
                                {"min_tokens", 4},
                                {"top_k", 1},
                                {"temperature", 1},
                                {"logprobs", 20},
                                {"echo", true},
                                {"logit_bias", {{"258", -100}, {"256", -100}}}});
  const Json& logprobs = answer["choices"][0]["logprobs"];
  for (size_t i = 1; i < logprobs["tokens"].size(); ++i) {
    EXPECT_TRUE(logprobs["token_logprobs"][i].is_number()) << i;
    EXPECT_GE(logprobs["token_logprobs"][i].get<double>(), -9999);
    for (const auto& [token, value] : logprobs["top_logprobs"][i].items()) {
      ASSERT_TRUE(value.is_number()) << token;
      EXPECT_GE(value.get<double>(), -9999);
    }
  }
}

TEST_F(ServerTest, AnAbortKeepsThePromptAndIsCounted) {
  const auto aborts = [] {
    const std::string text = metrics(server_->port());
    const size_t at = text.find("finished_reason=\"abort\"");
    return at == std::string::npos ? 0.0 : std::stod(text.substr(text.find('}', at) + 1));
  };
  const double before = aborts();
  Json body = {{"prompt", std::string(200, 'z')}, {"ignore_eos", true}, {"stream", true}};
  {
    Client client(server_->port());
    const std::string text = body.dump();
    client.send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                    "application/json\r\nContent-Length: {}\r\n\r\n{}",
                    text.size(), text));
    client.wait_for(400);
  }
  for (int i = 0; i < 600 && aborts() == before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(aborts(), before + 1);
  body["stream"] = false;
  body["max_tokens"] = 1;
  EXPECT_GE(cached(complete(body)), 64);
}

TEST_F(ServerTest, ClientsWithOtherSaltsCannotProbeAPrompt) {
  Json body = {{"prompt", std::string(200, 'y')}, {"max_tokens", 1}, {"cache_salt", "a"}};
  EXPECT_EQ(cached(complete(body)), 0);
  EXPECT_GE(cached(complete(body)), 64);
  body["cache_salt"] = "b";
  EXPECT_EQ(cached(complete(body)), 0);
  body.erase("cache_salt");
  EXPECT_EQ(cached(complete(body)), 0);
}

// With such an option keys need no salts of their own.
TEST_F(ServerTest, KeysShareNoPromptsWhereTheOperatorSaysSo) {
  for (const bool apart : {false, true}) {
    ServerConfig config = config_for(folder_->path().string());
    config.keys = {{"alice", "secret-1"}, {"bob", "secret-2"}};
    config.cache_per_key = apart;
    Server server(config, [](const std::string&) {});
    server.load();
    const auto cached_for = [&](const char* key, const char* salt) {
      Client client(server.port());
      const Json body = {
          {"prompt", std::string(200, 'x')}, {"max_tokens", 1}, {"cache_salt", salt}};
      return cached(
          client
              .post("/v1/completions", body.dump(),
                    fmt::format("Content-Type: application/json\r\nX-Api-Key: {}\r\n", key))
              .json());
    };
    EXPECT_EQ(cached_for("secret-1", ""), 0);
    EXPECT_GE(cached_for("secret-1", ""), 64);
    EXPECT_EQ(cached_for("secret-2", "") > 0, !apart);
    EXPECT_EQ(cached_for("secret-1", "a"), 0);
    EXPECT_GE(cached_for("secret-1", "a"), 64);
  }
}

// Streams that have not ended when the answers are there: were those too slow, more streams are
// begun.
TEST_F(ServerTest, HealthDoesNotWaitBehindStreams) {
  double waiting = 0;
  for (int choices = 4; waiting == 0 && choices <= 64; choices *= 2) {
    std::vector<std::unique_ptr<Client>> streams;
    const std::string text =
        Json{{"prompt", "a"}, {"ignore_eos", true}, {"stream", true}, {"n", choices}}.dump();
    for (int i = 0; i < 8; ++i) {
      streams.push_back(std::make_unique<Client>(server_->port()));
      streams.back()->send(
          fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                      "application/json\r\nContent-Length: {}\r\n\r\n{}",
                      text.size(), text));
    }
    streams[0]->wait_for(200);
    Client client(server_->port());
    EXPECT_EQ(client.get("/health").status, 200);
    const std::string all = client.get("/metrics").body;
    const size_t at = all.find("\nbraid:num_requests_waiting{");
    ASSERT_NE(at, std::string::npos);
    waiting = std::stod(all.substr(all.find('}', at) + 1));
  }
  EXPECT_GT(waiting, 0) << "every stream had ended before";
}

// Grammars that are not supported are never ignored.
TEST_F(ServerTest, WhatBindsAnswersIsRefusedAndNamed) {
  const Json base = {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}};
  const std::vector<std::pair<const char*, Json>> fields = {
      {"response_format", {{"type", "json_schema"}}},
      {"guided_json", Json::object()},
      {"guided_grammar", "root ::= \"a\""},
      {"functions", Json::array({Json::object()})}};
  for (const auto& [field, value] : fields) {
    Json body = base;
    body[field] = value;
    const Reply reply = post("/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 400) << field;
    EXPECT_EQ(reply.json()["error"]["param"], field);
  }
  Json text = base;
  text["response_format"] = {{"type", "text"}};
  text["max_tokens"] = 1;
  EXPECT_EQ(post("/v1/chat/completions", text).status, 200);
}

// Dashboards know these names: one that goes breaks them.
TEST_F(ServerTest, TheNamesOfMetricsStay) {
  complete({{"prompt", "a"}, {"max_tokens", 2}, {"ignore_eos", true}});
  std::set<std::string> names;
  std::istringstream lines(metrics(server_->port()));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) names.insert(line.substr(7));
  }
  const std::vector<std::string> want = {"braid:num_requests_running gauge",
                                         "braid:num_requests_waiting gauge",
                                         "braid:kv_cache_usage_perc gauge",
                                         "braid:prompt_tokens_total counter",
                                         "braid:generation_tokens_total counter",
                                         "braid:prefix_cache_queries_total counter",
                                         "braid:prefix_cache_hits_total counter",
                                         "braid:num_preemptions_total counter",
                                         "braid:admission_rejections_total counter",
                                         "braid:request_success_total counter",
                                         "braid:time_to_first_token_seconds histogram",
                                         "braid:inter_token_latency_seconds histogram",
                                         "braid:request_time_per_output_token_seconds histogram",
                                         "braid:e2e_request_latency_seconds histogram",
                                         "braid:request_queue_time_seconds histogram",
                                         "braid:request_prefill_time_seconds histogram",
                                         "braid:request_decode_time_seconds histogram",
                                         "braid:request_inference_time_seconds histogram",
                                         "braid:request_prompt_tokens histogram",
                                         "braid:request_generation_tokens histogram",
                                         "braid:request_params_n histogram",
                                         "braid:request_params_max_tokens histogram",
                                         "braid:request_num_preemptions histogram",
                                         "braid:iteration_tokens_total histogram",
                                         "braid:num_requests_waiting_by_reason gauge",
                                         "braid:cache_config_info gauge"};
  for (const std::string& name : want) EXPECT_TRUE(names.contains(name)) << name;
}

}  // namespace
}  // namespace braid::server
