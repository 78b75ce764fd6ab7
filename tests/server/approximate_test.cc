// A server with approximate prompts (`--keep`) says so in answers, logs and counts, and answers
// exact requests beside.
#include "server/fixture.h"

namespace braid::server {
namespace {

using testing::HasSubstr;
using testing::Not;

class ApproximateServer : public testing::Test {
 protected:
  ApproximateServer() {
    write_hf_folder(golden::load_random_model("llama3_gqa"), folder_.path());
    ServerConfig config = config_for(folder_.path().string());
    config.engine.thinning = {.keep = {0.5}, .groups = {2}};
    server_.emplace(config, [](const std::string&) {});
    server_->load();
  }
  Reply post(Json body) {
    body.update({{"prompt", std::string(200, 'z')}, {"max_tokens", 3}, {"ignore_eos", true}});
    Client client(server_->port());
    return client.post("/v1/completions", body.dump());
  }
  std::string metrics() {
    Client client(server_->port());
    return client.get("/metrics").body;
  }

  const golden::Folder folder_{"approximate_server"};
  std::optional<Server> server_;
};

TEST_F(ApproximateServer, AnswersSayWhatWasLeftOut) {
  const Json first = post({}).json();
  const Json& made = first.at("approximate");
  EXPECT_EQ(made.at("keep"), Json({0.5}));
  EXPECT_EQ(made.at("groups"), Json({2}));
  EXPECT_EQ(made.at("importance"), "own");
  EXPECT_LT(made.at("pairs"), 1);
  EXPECT_LT(made.at("far_keys"), 1);
  EXPECT_THAT(metrics(), HasSubstr("braid:approximate_requests_total{model_name=\"tiny\"} 1\n"));

  const std::string stream = post({{"stream", true}, {"cache_salt", "another"}}).body;
  EXPECT_THAT(stream, HasSubstr("\"finish_reason\":\"length\"}],\"approximate\":{\"keep\":[0.5]"));

  // An exact request finds approximate pages alone.
  const Json exact = post({{"exact", true}}).json();
  EXPECT_FALSE(exact.contains("approximate"));
  EXPECT_EQ(exact["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  const int64_t passed = (exact["usage"]["prompt_tokens"].get<int64_t>() - 1) / 64 * 64;
  EXPECT_GT(passed, 0);
  EXPECT_THAT(
      metrics(),
      HasSubstr(fmt::format(
          "braid:prefix_cache_approximate_passed_total{{model_name=\"tiny\"}} {}\n", passed)));
  Client client(server_->port());
  EXPECT_EQ(client.get("/stats").json()["approximate_passed"], passed);
  EXPECT_THAT(post({{"exact", true}, {"stream", true}}).body, Not(HasSubstr("approximate")));
  EXPECT_EQ(post({{"exact", 1}}).status, 400);
  expect_nothing_left(server_->port());
}

}  // namespace
}  // namespace braid::server
